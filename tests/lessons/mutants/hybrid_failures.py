"""The lesson hybrid_failures, broken on purpose."""

MUTANTS = {
    "the copy waits for all trainers": (
        "    copies = copied()\n    dist.barrier()\n",
        "    dist.barrier()\n    time.sleep(0.5)\n    copies = copied()\n",
    ),
    "the checkpoint does not wait for all trainers": (
        "    dist.barrier(group)\n    if dist.get_rank(group) == 0:",
        "    if dist.get_rank(group) == 0:",
    ),
    "the checkpoint is named before it is complete": (
        '        write(f"dense-{number}", model.dense.module.state_dict())\n        write("latest", number)',
        '        write("latest", number)\n        write(f"dense-{number}", model.dense.module.state_dict())',
    ),
    "trainer 1 vanishes without a word": (
        'died, training = kill(1, "train_all")',
        'died, training = kill(1, "train_all", signal.SIGSTOP)',
    ),
    "a machine that vanishes takes leave": ('kill(1, "train_all", signal.SIGSTOP)', 'kill(1, "train_all")'),
    "the server lives": ('died, training = kill(server, "run")', 'died, training = kill(1, "run")'),
    "the weights of the checkpoint are never read": (
        'rpc.rpc_sync("server", read_table, (table.get_module_rref(), number))',
        "pass",
    ),
    "the dense layer stays new": ('torch.load(f"{folder}/dense-{number}")', "model.dense.module.state_dict()"),
    "the checkpoint does not say where it stopped": (
        "call_trainers(members, prepare, table, number)\n    return number",
        "call_trainers(members, prepare, table, number)\n    return 0",
    ),
    "the checkpoint is stale": ("number % 10 == 9", "number == 9"),
    "the survivors share a smaller batch": (
        "batch(numbers[dist.get_rank(group) :: dist.get_world_size(group)])",
        "batch(numbers[rank::trainers])",
    ),
    "the survivors move the table less": ("0.5 * trainers / members", "0.5"),
    "the trainers do not take turns": ("            dist.barrier(group)\n    return loss", "    return loss"),
    "the dead take part in the new group": (
        'for trainer in before if f"trainer{trainer}" in alive]',
        "for trainer in before]",
    ),
    "the trainers stop with the master": (
        '            with marked("trains"):\n',
        '            with marked("trains"):\n                rpc.rpc_sync("master", latest)\n',
    ),
    "nobody plays the master": ('start_on(server, "run", 400).get(60)', "pass"),
    "fresh ranks begin from nothing": (
        'start_on(master, "run", 400).get(60)\nback',
        'without_checkpoint()\nstart_on(master, "run", 400).get(60)\nback',
    ),
}
