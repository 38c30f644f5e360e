"""The lesson ring_all_reduce, broken on purpose."""

MUTANTS = {
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
    "the dedicated aggregator adds a tensor of its own": ("        tensor.zero_()\n", "        pass\n"),
    "the whole tensors go to the left": (
        "dist.irecv(incoming, left)\n    dist.send(outgoing, right)",
        "dist.irecv(incoming, right)\n    dist.send(outgoing, left)",
    ),
    "a rank passes on its own tensor again and again": (
        "        passing, received = received, passing  # what came in goes out next\n",
        "",
    ),
    "the ring sends whole tensors in its second half": (
        "        finished = chunks[(rank - step + 1) % n]\n        pass_on(finished, chunks[(rank - step) % n])\n",
        "        whole = tensor.clone()\n        pass_on(tensor, whole)\n"
        "        chunks[(rank - step) % n].copy_(whole.tensor_split(n)[(rank - step) % n])\n",
    ),
    "every rank begins with the chunk of its left neighbour": (
        "        outgoing = chunks[(rank - step) % n]\n        mine = chunks[(rank - step - 1) % n]\n",
        "        outgoing = chunks[(rank - step - 1) % n]\n        mine = chunks[(rank - step - 2) % n]\n",
    ),
    "the ring adds up in another order on each rank": (
        "for algorithm in (naive_exchange, ring_all_reduce):",
        "for algorithm in (naive_exchange, ring_of_whole_tensors):",
    ),
    "the formula of the naive exchange is the one that can be read": (
        "every_pair = n * (n - 1) * B",
        "every_pair = (n - 1) * (n - 1) * B",
    ),
    "nothing is measured": (
        "        messages = run(algorithm, length)\n",
        "        pass\n    messages = run(algorithm, length)\n    if True:\n",
    ),
    "everything is measured twice": (
        "        messages = run(algorithm, length)\n",
        "        messages = run(algorithm, length)\n        run(algorithm, length)\n",
    ),
    "a cable of the aggregator is as busy as one of the ring": (
        "    sent = count(name).bytes / (4 * n)",
        '    sent = count("ring_all_reduce").bytes / (4 * n)',
    ),
}
