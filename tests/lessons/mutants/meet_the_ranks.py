"""The lesson meet_the_ranks, broken on purpose."""

MUTANTS = {
    "two ranks take the same cards": ("[rank::world_size]  # every", "[rank // 2 :: world_size]  # every"),
    "every rank is given the number of rank 0": (
        'world.view.scatter("mine", numbers)',
        'world.view["mine"] = numbers[:1]',
    ),
    "the ranks never learn the sum": ('world.view["total"] = sum(', 'world.view["total"] = max('),
    "all_reduce does not add up": (
        'dist.all_reduce(value)\nprint(f"rank {rank} contributed',
        'dist.all_reduce(value, op=dist.ReduceOp.MAX)\nprint(f"rank {rank} contributed',
    ),
    "the script adds nothing up": ('dist.all_reduce(value)\nprint(f"rank {rank} of', 'print(f"rank {rank} of'),
    "the script fails under torchrun": ("!torchrun --nproc-per-node={WORLD_SIZE}", "!torchrun --nproc-per-node=none"),
    "torchrun starts one process": ("!torchrun --nproc-per-node={WORLD_SIZE}", "!torchrun --nproc-per-node=1"),
    "the script does not leave its group": ('{value.tolist()}")\ndist.destroy_process_group()', '{value.tolist()}")'),
    "nobody naps": ("import time\ntime.sleep(600)", "import time\ntime.sleep(0)"),
    "the ranks are not replaced": ("old_pids = world.pids\nworld.restart()", "old_pids = world.pids"),
    "all ranks draw the same points": ("torch.manual_seed(rank)", "torch.manual_seed(0)"),
    "the ranks use the sum of the gradients": ("            line.grad /= world_size\n", ""),
    "each rank trains alone": ("if together:\n", "if not points:\n"),
    "the one process has the points of rank 0 only": (
        'all_points = sum(world.view["points"], [])',
        'all_points = world.view["points"][0]',
    ),
    "two ranks get one ticket": ('store.add("tickets", 1)', 'store.add(f"tickets{rank}", 1)'),
    "the group has not been left": ("dist.destroy_process_group()\nkeys", "pass\nkeys"),
    "the store forgets": ("keys = sorted(store.list_keys())", "keys = []"),
    "the ranks meet at an address without a store": (
        'os.environ["MASTER_ADDR"] + ":" + os.environ["MASTER_PORT"]',
        'os.environ["MASTER_ADDR"] + ":1"',
    ),
    "the ranks keep their numbers": ("reversed_rank = world_size - 1 - rank", "reversed_rank = rank"),
    "both groups meet under one prefix": ('"the same store": "second"}', '"the same store": "first"}'),
    "the figure exchanges the lines found alone and together": (
        'drawn = {"alone": lines["alone"], "together": lines["together"][0]}',
        'drawn = {"alone": lines["together"], "together": lines["alone"][0]}',
    ),
    "the ranks meet by the environment instead of the address": ("init_method=address,", 'init_method="env://",'),
}
