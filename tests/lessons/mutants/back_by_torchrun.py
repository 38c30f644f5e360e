"""The lesson back_by_torchrun, broken on purpose."""

MUTANTS = {
    "the loop ignores the checkpoint": (
        "    if os.path.exists(path):\n        training.load(torch.load(path))",
        "    if os.path.exists(path):\n        torch.load(path)",
    ),
    "every step writes a checkpoint": ("training.step % 25 == 0 and", "training.step % 1 == 0 and"),
    "no checkpoint is written": ("training.step % 25 == 0 and", "False and"),
    "the checkpoint lacks the last step": (
        '            torch.save(training.state(), f"{path}.part")\n            os.replace',
        '            torch.save(training.state() - 1, f"{path}.part")\n            os.replace',
    ),
    "the ranks are not killed": ("new_ranks(cells)\nworld.call", "world.call"),
    "no rank is killed": ("killed = interruption.kill(world, 1, awaited_by=others)", "killed = time.monotonic()"),
    "the spare trains from the start": ('world, spares, "stand_by", run', 'world, spares, "train_with_meetings", run'),
    "the default allows restarts": (
        "both_hosts_train()\nworld",
        'both_hosts_train("--max-restarts=3")\nworld',
    ),
    "the job needs both hosts": ('"--nnodes=1:2"', '"--nnodes=2:2"'),
    "one agent has no restarts": (
        'run = both_hosts_train("--max-restarts=3")',
        'run = both_hosts_train("--max-restarts=0")',
    ),
    "the gradients of the hosts are not added": (
        "    dist.all_reduce(gradient)\n    training.update(gradient)\n    time.sleep(0.01)\n    if rank",
        "    training.update(gradient)\n    time.sleep(0.01)\n    if rank",
    ),
    "the result is not the state": (
        'torch.save(training.state(), f"{folder}/end")',
        'torch.save(Training().state(), f"{folder}/end")',
    ),
    "the line of the spare is the line of the survivors": (
        '"spare": (*of_spare, DIES_AT),',
        '"spare": (*of_survivors, DIES_AT),',
    ),
    "the line of torchrun begins at the return of the host": (
        '"torchrun": (failed, interruption.steps_in(log), last_of_both),',
        '"torchrun": (left_alone, interruption.steps_in(log), last_alone),',
    ),
    "the return of a host costs what its failure costs": (
        '["torchrun, the host comes back", 2, on_return],',
        '["torchrun, the host comes back", 2, by_torchrun],',
    ),
    "the survivors are as many as before": (
        '["survivors continue", WORLD_SIZE - 1, by_survivors],',
        '["survivors continue", WORLD_SIZE, by_survivors],',
    ),
    "the loop writes into the old checkpoint": (
        '            torch.save(training.state(), f"{path}.part")\n            os.replace(f"{path}.part", path)',
        "            torch.save(training.state(), path)",
    ),
}
