"""The lesson meet_the_ranks, broken on purpose."""

MUTANTS = {
    "two ranks take the same cards": ("[rank::world_size]  # every", "[rank // 2 :: world_size]  # every"),
    "every rank is given the number of rank 0": (
        'world.view.scatter("mine", numbers)',
        'world.view["mine"] = numbers[:1]',
    ),
    "the ranks never learn the sum": ('world.view["total"] = sum(', 'world.view["total"] = max('),
    "all_reduce does not add up": (
        'dist.all_reduce(value)\nprint(f"rank {rank} put in',
        'dist.all_reduce(value, op=dist.ReduceOp.MAX)\nprint(f"rank {rank} put in',
    ),
    "two ranks get one ticket": ('store.add("tickets", 1)', 'store.add(f"tickets{rank}", 1)'),
    "the group has not been left": ("dist.destroy_process_group()\nkeys", "pass\nkeys"),
    "the store forgets": ("keys = sorted(store.list_keys())", "keys = []"),
    "both groups meet in stores of their own": (
        '%px meet("the same store", store=second,',
        'world.new_store()\n%px store = connect()\n%px meet("the same store", store=dist.PrefixStore("second", store),',
    ),
    "nobody naps": ("import time\ntime.sleep(600)", "import time\ntime.sleep(0)"),
    "the ranks are not replaced": ("old_pids = world.pids\nworld.restart()", "old_pids = world.pids"),
    "the script adds nothing up": ('dist.all_reduce(value)\nprint(f"rank {dist', 'print(f"rank {dist'),
}
