"""The lesson collectives, broken on purpose."""

MUTANTS = {
    "broadcast takes what rank 1 holds": ("dist.broadcast(broadcast, src=0)", "dist.broadcast(broadcast, src=1)"),
    "scatter gives everything to all": (
        "dist.scatter(scatter[here], parts, src=0)\n\nassert",
        "dist.broadcast(scatter.copy_(one_has_all), src=0)\n\nassert",
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
    "rank 1 is not late": (
        "if rank == 1:\n    dist.recv(word, src=0)\nworks",
        "if rank == 1:\n    later = dist.irecv(word, src=0)\nworks",
    ),
    "odd and even ranks are one group": ("mine = odd if rank % 2 else even", "mine = dist.group.WORLD"),
    "all ranks make the group of rank 1": ("if rank == 1:\n    alone = dist", "if True:\n    alone = dist"),
    "the mesh has no groups across the hosts": ('"cpu", (hosts, n // hosts), mesh', '"cpu", (1, n), mesh'),
    "all ranks call in one order": (
        """    if rank == 1:
        dist.all_reduce(loss, group=group)
    dist.broadcast(weights, src=0, group=group)
    if rank != 1:
""",
        """    dist.broadcast(weights, src=0, group=group)
    if True:
""",
    ),
    "nobody compares notes": (
        "(dist.DebugLevel.OFF, dist.DebugLevel.DETAIL)",
        "(dist.DebugLevel.OFF, dist.DebugLevel.INFO)",
    ),
    "all ranks ask for SUM": ("op = dist.ReduceOp.MAX if rank == 0 else", "op = dist.ReduceOp.SUM if rank == 0 else"),
}
