"""The lesson ring_all_reduce, broken on purpose."""

MUTANTS = {
    "the figure shows a ring to the left": ("{r: [(r + 1) % WORLD_SIZE] for r", "{r: [(r - 1) % WORLD_SIZE] for r"),
    "the figure shows ranks that send to themselves": ("in ranks if peer != r]", "in ranks]"),
    "the figure shows another aggregator": (
        "{r: [0] if r > 0 else list(ranks[1:]) for r in ranks}",
        "{r: [1] if r != 1 else [0, *ranks[2:]] for r in ranks}",
    ),
    "the library call is the naive exchange": (
        'count_and_measure("dist.all_reduce")',
        'count_and_measure("naive_exchange")',
    ),
    "the library call is an aggregator": (
        'count_and_measure("dist.all_reduce")',
        'count_and_measure("aggregator_on_rank_0")',
    ),
    "the naive exchange forgets a rank": (
        "others = [peer for peer in range(n) if peer != rank]",
        "others = [peer for peer in (left, right) if abs(peer - rank) < n - 1]",
    ),
    "the whole tensors go to the left": (
        "dist.irecv(incoming, left)\n    dist.send(outgoing, right)",
        "dist.irecv(incoming, right)\n    dist.send(outgoing, left)",
    ),
    "a rank passes on its own tensor again and again": (
        "        passing, received = received, passing  # the received tensor is sent next\n",
        "",
    ),
    "the ring sends whole tensors in its second half": (
        "        finished = chunks[(rank - step + 1) % n]\n        pass_on(finished, chunks[(rank - step) % n])",
        "        whole = tensor.clone()\n        pass_on(tensor, whole)\n"
        "        chunks[(rank - step) % n].copy_(whole.tensor_split(n)[(rank - step) % n])\n",
    ),
    "every rank begins with the chunk of its left neighbour": (
        "        outgoing = chunks[(rank - step) % n]\n        mine = chunks[(rank - step - 1) % n]\n",
        "        outgoing = chunks[(rank - step - 1) % n]\n        mine = chunks[(rank - step - 2) % n]\n",
    ),
    "the ring adds up in another order on each rank": (
        "same_bits(eval(name)) for name",
        'same_bits(eval(name.replace("ring_all_reduce", "ring_of_whole_tensors"))) for name',
    ),
    "the formula of the naive exchange leaves out a rank": (
        '"naive_exchange": n * (n - 1) * B',
        '"naive_exchange": (n - 1) * (n - 1) * B',
    ),
    "nothing is measured": (
        "        messages = run(name, length)\n",
        "        pass\n    messages = run(name, length)\n    if True:\n",
    ),
    "everything is measured twice": (
        "        messages = run(name, length)\n",
        "        messages = run(name, length)\n        run(name, length)\n",
    ),
    "what is called measured is counted": (
        "    measured[name] = sum(carried[name]) / (2 if on_linux else n)",
        "    measured[name] = counted[name]",
    ),
    "a cable of the aggregator is as busy as one of the ring": (
        "    tensors = count(name).bytes / B",
        '    tensors = count("ring_all_reduce").bytes / B',
    ),
    "the aggregator uses both directions at once": (
        'into["aggregator_on_rank_0"] + out["aggregator_on_rank_0"]',
        'max(into["aggregator_on_rank_0"], out["aggregator_on_rank_0"])',
    ),
    "the drawing sends the chunks to the left": (
        "    sent = [sent[(r - 1) % n] for r in range(n)]",
        "    sent = [sent[(r + 1) % n] for r in range(n)]",
    ),
    "the lesson goes on with a ring of whole tensors": (
        "or_else=ring_of_the_lesson)",
        "or_else=ring_of_whole_tensors)",
    ),
    "an algorithm is compared with itself": (
        "tensor, expected = [torch.arange(1.0, length + 1) * (rank + 1) for _ in range(2)]",
        "tensor = expected = torch.arange(1.0, length + 1) * (rank + 1)",
    ),
    "n divides every length of the comparison": (
        "for length in (1, n - 1, n, n + 1, 1003):",
        "for length in (n, 2 * n):",
    ),
    "a rank starts with the digit of its left neighbour": (
        "tensor = torch.full((n,), 10.0**rank)\nwith recorded(watch=tensor) as messages:\n    ring_all_reduce(tensor)",
        "tensor = torch.full((n,), 10.0**left)\nwith recorded(watch=tensor) as messages:\n    ring_all_reduce(tensor)",
    ),
    "every rank begins with the chunk of its right neighbour": (
        """        outgoing = chunks[(rank - step) % n]
        mine = chunks[(rank - step - 1) % n]
        received = buffer[: len(mine)]
        pass_on(outgoing, received)
        mine += received
    for step in range(n - 1):  # all-gather
        finished = chunks[(rank - step + 1) % n]
        pass_on(finished, chunks[(rank - step) % n])""",
        """        outgoing = chunks[(rank - step + 1) % n]
        mine = chunks[(rank - step) % n]
        received = buffer[: len(mine)]
        pass_on(outgoing, received)
        mine += received
    for step in range(n - 1):  # all-gather
        finished = chunks[(rank - step + 2) % n]
        pass_on(finished, chunks[(rank - step + 1) % n])""",
    ),
    "the aggregator returns its own tensor": (
        "    for work in [dist.isend(tensor, peer) for peer in range(1, n)]:",
        "    own = torch.full_like(tensor, 1.0)\n    for work in [dist.isend(own, peer) for peer in range(1, n)]:",
    ),
    "all ranks hold the same random numbers": (
        "generator=torch.Generator().manual_seed(rank))",
        "generator=torch.Generator().manual_seed(0))",
    ),
    "the least busy link counts into a machine": (
        "    into[name] = tensors.sum(axis=0).max()",
        "    into[name] = tensors.sum(axis=0).min()",
    ),
}
