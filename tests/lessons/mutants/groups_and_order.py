"""The lesson groups_and_order, broken on purpose."""

MUTANTS = {
    "every rank is on one host": ('object(hosts, "ab"[rank % 2])', 'object(hosts, "a")'),
    "objects take one collective": (
        "    dist.broadcast_object_list(settings, src=0)",
        "    settings = [{'rate': 0.1}]\n    dist.broadcast(torch.zeros(1), src=0)",
    ),
    "odd and even ranks are one group": ("mine = odd if rank % 2 else even", "mine = dist.group.WORLD"),
    "all ranks make the group of rank 1": ("if rank == 1:\n    alone = dist", "if True:\n    alone = dist"),
    "the mesh has no groups across the hosts": ("    (rows, columns),\n", "    (1, n),\n"),
    "adding up within the hosts is enough": ("dist.all_reduce(in_steps, group=host)", "pass"),
    "a group of each host holds all ranks": (
        "members = [r for r in range(n) if hosts[r] == host]\n        group",
        "members = list(range(n))\n        group",
    ),
    "all groups have one name": (
        'experts = dist.new_group(timeout=ten_seconds, group_desc="experts")',
        "experts = embedding",
    ),
    "gloo reads pg_options": (
        "dist.new_group(timeout=timedelta(seconds=3), pg_options=options,",
        "dist.new_group(timeout=timedelta(seconds=1), pg_options=options,",
    ),
    "the others come to the barrier, too": (
        'group_desc="short")\nif rank == 0:',
        'group_desc="short")\nif True:',
    ),
    "the mesh ignores its override": ('{"host": options(3), "local"', '{"host": options(20), "local"'),
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
    "the history knows an operator that is not there": (
        "dist.all_reduce(once_more, op)",
        "dist.all_reduce(once_more)",
    ),
    "the history has the groups that compare notes": (
        "dist.all_reduce(once_more, op)",
        "dist.set_debug_level(dist.DebugLevel.DETAIL)\n"
        "dist.all_reduce(once_more, op, group=dist.new_group(timeout=timedelta(seconds=5)))\n"
        "dist.set_debug_level(dist.DebugLevel.OFF)",
    ),
    "the groups come in one order": ("in (second, first) if rank == 1 else (first, second)", "in (first, second)"),
    "rows that arrive bring their gradient": (
        "averaged(lambda rows: torch.cat(all_gather(rows)))",
        "averaged(lambda rows: rows)",
    ),
    "own rows put back find another share": ("    rows_of_all[rank] = rows\n", "    rows_of_all = [rows] * n\n"),
    "what a rank finds for its own rows is enough": (
        "        dist.reduce_scatter(mine, blocks)\n        return mine",
        "        return blocks[rank]",
    ),
    "the way back of a broadcast is a broadcast": ("(broadcast, reduce), (reduce", "(broadcast, broadcast), (reduce"),
    "the library's older function finds a share": (
        "torch.cat(older.all_gather(rows))",
        "own_rows_put_back(rows)",
    ),
}
