"""The lesson groups_and_order, broken on purpose."""

MUTANTS = {
    "every rank is on one host": ('object(hosts, "ab"[rank % 2])', 'object(hosts, "a")'),
    "objects take one collective": (
        '    dist.all_gather_object(hosts, "ab"[rank % 2])',
        '    hosts = ["ab"[r % 2] for r in range(n)]\n    dist.all_gather([torch.ones(1)] * n, torch.ones(1))',
    ),
    "odd and even ranks are one group": ("mine = odd if rank % 2 else even", "mine = dist.group.WORLD"),
    "all ranks make the group of rank 1": (
        'if rank == 1:\n    group_works["rank 1"] = works([1])',
        'group_works["rank 1"] = works([rank])\nif rank != 1:\n    del group_works["rank 1"]',
    ),
    "the mesh has no groups across the hosts": ("    (rows, columns),\n", "    (1, n),\n"),
    "adding up within the hosts is enough": ("dist.all_reduce(in_steps, group=host)", "pass"),
    "a group of each host holds all ranks": (
        "members = [r for r in range(n) if hosts[r] == host]\n        group",
        "members = list(range(n))\n        group",
    ),
    "a rank that is in no group does not count it": (
        "alone = dist.new_group([rank], timeout=timedelta(seconds=3))",
        "alone = dist.new_group([rank], timeout=timedelta(seconds=3), use_local_synchronization=True)",
    ),
    "gloo reads pg_options": (
        "dist.new_group(timeout=in_argument, pg_options=options,",
        "dist.new_group(timeout=in_options, pg_options=options,",
    ),
    "the others come to the barrier as well": (
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
    "DETAIL is off when the group is made": (
        "dist.set_debug_level(dist.DebugLevel.DETAIL)\ndetailed",
        "dist.set_debug_level(dist.DebugLevel.OFF)\ndetailed",
    ),
    "the maximum is taken in a group that was made before DETAIL": (
        "dist.all_reduce(wrong, op, group=detailed)",
        "detailed = dist.group.WORLD\n    dist.all_reduce(wrong, op, group=detailed)",
    ),
    "rank 1 asks for MAX": ("op = dist.ReduceOp.MAX if rank == 0 else", "op = dist.ReduceOp.MAX if rank == 1 else"),
    "the names of the mesh are exchanged": (
        'mesh_dim_names=("host", "local"),\n    backend_override={"host": options(10)',
        'mesh_dim_names=("local", "host"),\n    backend_override={"host": options(10)',
    ),
    "rank 0 waits in the default group": ("dist.barrier(group)", "dist.barrier()"),
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
    "two groups have one description": ('group_desc="first")', 'group_desc="second")'),
    "the timeouts of the options and of the argument agree": (
        "in_options, in_argument = timedelta(seconds=1),",
        "in_options, in_argument = timedelta(seconds=3),",
    ),
    "the ranks add up across the hosts first": (
        "group=local)\nin_steps = on_one_host.clone()\ndist.all_reduce(in_steps, group=host)",
        "group=host)\nin_steps = on_one_host.clone()\ndist.all_reduce(in_steps, group=local)",
    ),
}
