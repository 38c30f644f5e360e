"""The lesson collectives, broken on purpose."""

MUTANTS = {
    "broadcast takes what rank 1 holds": (
        "dist.broadcast(after_broadcast, src=0)",
        "dist.broadcast(after_broadcast, src=1)",
    ),
    "scatter gives everything to all": (
        "elements = list(one_has_all.chunk(n)) if rank == 0 else None\n"
        "dist.scatter(after_scatter[here], elements, src=0)",
        "elements = list(one_has_all.chunk(n)) if rank == 0 else None\n"
        "dist.broadcast(after_scatter.copy_(one_has_all), src=0)",
    ),
    "gather collects on every rank": (
        "dist.gather(chunks[here], list(after_gather.chunk(n)) if rank == 0 else None, dst=0)",
        "dist.all_gather_single(after_gather, chunks[here])",
    ),
    "reduce is all_reduce": ("dist.reduce(after_reduce, dst=0)", "dist.all_reduce(after_reduce)"),
    "all_reduce is reduce": ("dist.all_reduce(after_all_reduce)", "dist.reduce(after_all_reduce, dst=0)"),
    "reduce_scatter leaves the whole sum on each rank": (
        "dist.reduce_scatter_single(after_reduce_scatter[here], chunks)",
        "dist.all_reduce(after_reduce_scatter.copy_(chunks))",
    ),
    "all_to_all is all_gather": (
        "dist.all_to_all_single(after_all_to_all, chunks)",
        "dist.all_gather_single(after_all_to_all, chunks[here])",
    ),
    "a barrier lets each rank go at once": ("at_barrier = stay(dist.barrier)", "at_barrier = stay(lambda: None)"),
    "each rank waits for all in a scatter": (
        "dist.scatter(chunk, elements, src=0)\n",
        "dist.barrier()\ndist.scatter(chunk, elements, src=0)\n",
    ),
    "every operator adds up": ("dist.all_reduce(number, op)", "dist.all_reduce(number)"),
    "a call returns when rank 1 has come": (
        "works = [dist.all_reduce(sums, async_op=True) for sums in (first, second)]",
        "works = [dist.all_reduce(sums) for sums in (first, second)]",
    ),
    "one half is enough": (
        "    dist.all_gather_single(result, mine)\n    return result",
        "    result[here] = mine\n    return result",
    ),
    "the all_gather by hand leaves its own chunk out": (
        "    result[here] = mine\n    for src",
        "    for src",
    ),
    "the figure shows the transpose backwards": (
        'exchange = on_all_ranks("chunks", "after_all_to_all")',
        'exchange = on_all_ranks("after_all_to_all", "chunks")',
    ),
    "a figure shows the ranks in the wrong order": (
        "{name: [tensor.tolist() for tensor in world.view[name]] for name in names}",
        "{name: [tensor.tolist() for tensor in world.view[name]][::-1] for name in names}",
    ),
    "rank 0 comes last": ("sleep(1 if rank == n - 1 else", "sleep(1 if rank == 0 else"),
    "the deadlocks are those of rank 0": (
        'world.view[f"after_{name}"][1]',
        'world.view[f"after_{name}"][0]',
    ),
    "rank 0 broadcasts for all": (
        "dist.broadcast(result[src:src + 1], src=src)",
        "dist.broadcast(result[src:src + 1], src=0)",
    ),
    "the first figure adds up the numbers of each rank": ("for column in zip(*gradients)]", "for column in gradients]"),
    "the ranks wait in the order of the calls": ("for work in reversed(works):", "for work in works:"),
    "rank 1 sends its message before it leaves the scatter": (
        "dist.scatter(chunk, elements, src=0)\nif others_to_tell and rank == 1:\n    dist.send(chunk, dst=last)\n",
        "if others_to_tell and rank == 1:\n    dist.send(chunk, dst=last)\ndist.scatter(chunk, elements, src=0)\n",
    ),
}
