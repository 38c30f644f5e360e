"""The lesson collectives, broken on purpose."""

MUTANTS = {
    "broadcast takes what rank 1 holds": ("dist.broadcast(broadcast, src=0)", "dist.broadcast(broadcast, src=1)"),
    "scatter gives everything to all": (
        "parts = list(one_has_all.chunk(n)) if rank == 0 else None\ndist.scatter(scatter[here], parts, src=0)",
        "parts = list(one_has_all.chunk(n)) if rank == 0 else None\ndist.broadcast(scatter.copy_(one_has_all), src=0)",
    ),
    "gather collects on every rank": (
        "dist.gather(chunks[here], list(gather.chunk(n)) if rank == 0 else None, dst=0)",
        "dist.all_gather(list(gather.chunk(n)), chunks[here])",
    ),
    "reduce is all_reduce": ("dist.reduce(reduce, dst=0)", "dist.all_reduce(reduce)"),
    "all_reduce is reduce": ("dist.all_reduce(all_reduce)", "dist.reduce(all_reduce, dst=0)"),
    "reduce_scatter leaves the whole sum on each rank": (
        "dist.reduce_scatter(reduce_scatter[here], list(chunks.chunk(n)))",
        "dist.all_reduce(reduce_scatter.copy_(chunks))",
    ),
    "all_to_all is all_gather": (
        "dist.all_to_all_single(all_to_all, chunks)",
        "dist.all_gather(list(all_to_all.chunk(n)), chunks[here])",
    ),
    "a barrier lets each rank go at once": ("dist.barrier()\ngone = now()", "gone = now()"),
    "each rank waits for all in a scatter": (
        "dist.scatter(scatter[here], parts, src=0)\nif others_to_tell",
        "dist.barrier()\nif others_to_tell",
    ),
    "every operator adds up": ("dist.all_reduce(number, op)", "dist.all_reduce(number)"),
    "a call returns when rank 1 has come": (
        "works = [dist.all_reduce(sums, async_op=True) for sums in (first, second)]",
        "works = [dist.all_reduce(sums) for sums in (first, second)]",
    ),
    "one half is enough": (
        "    dist.all_gather(list(result.chunk(n)), mine)\n    return result",
        "    result[here] = mine\n    return result",
    ),
    "rank 0 broadcasts for all": (
        "dist.broadcast(by_hand[src:src + 1], src=src)",
        "dist.broadcast(by_hand[src:src + 1], src=0)",
    ),
}
