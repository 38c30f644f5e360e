"""The lesson hybrid_recovery, broken on purpose."""

MUTANTS = {
    "the weights of the checkpoint are never read": (
        'rpc.rpc_sync("server", read_table, (table.get_module_rref(), number))',
        "pass",
    ),
    "the dense layer stays new": (
        'torch.load(f"{job.folder}/dense-{number}")',
        "job.model.dense.module.state_dict()",
    ),
    "the checkpoint does not say where it stopped": (
        "call_trainers(members, prepare, table, number)\n    return number",
        "call_trainers(members, prepare, table, number)\n    return 0",
    ),
    "the checkpoint is stale": ("number % 10 == 9", "number == 9"),
    "a checkpoint every twenty steps": ("number % 10 == 9", "number % 20 == 19"),
    "the survivors share a smaller batch": (
        "batch(numbers[dist.get_rank(job.group) :: dist.get_world_size(job.group)])",
        "batch(numbers[rank::trainers])",
    ),
    "the survivors move the table less": ("0.5 * trainers / dist.get_world_size(job.group)", "0.5"),
    "the trainers do not take turns": (
        "                    optimizer.step(context)\n            dist.barrier(job.group)",
        "                    optimizer.step(context)",
    ),
    "the dead take part in the new group": (
        'for trainer in before if f"trainer{trainer}" in alive]',
        "for trainer in before]",
    ),
    "nobody plays the master": ('start_on(server, "run", 500).get(60)', "pass"),
    "the trainers stop with the master": (
        '            with marked("trains"):\n',
        '            with marked("trains"):\n                rpc.rpc_sync("master", latest)\n',
    ),
    "an error with another cause begins again": (
        'if "server" not in alive or members in ([], before):',
        'if "server" not in alive or members == []:',
    ),
    "the training goes back one checkpoint too far": (
        "    number = latest()\n",
        "    number = max(0, latest() - 10)\n",
    ),
    "the master waits for all steps": ('kill(master, "ask_once")', 'kill(master, "run")'),
    "the server lives": ('kill(server, "run")', 'kill(1, "run")'),
    "fresh ranks begin from nothing": (
        "fresh_ranks()\nstart_on(master",
        "fresh_ranks(forget=True)\nstart_on(master",
    ),
    "trainer 1 trained on before trainer 0 was killed": (
        'seconds = max(end for what, _, end, _ in marks["trainer 1"]',
        'seconds = min(end for what, _, end, _ in marks["trainer 1"]',
    ),
    "the figure shows the new master before it regroups": (
        'start_on(server, "run", 500).get(60)\nmarks = marks_of_ranks(dead=master)\n',
        'marks = marks_of_ranks(dead=master)\nstart_on(server, "run", 500).get(60)\n',
    ),
    "the fresh ranks trained on before the server was killed": (
        'min(begin for what, begin, *_ in back["trainer 0"]',
        'min(begin for what, begin, *_ in marks["trainer 0"]',
    ),
}
