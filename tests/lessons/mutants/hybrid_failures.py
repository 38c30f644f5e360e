"""The lesson hybrid_failures, broken on purpose."""

MUTANTS = {
    "trainer 1 vanishes without a word": ("words_by_trainer = kill(1)", "words_by_trainer = kill(1, signal.SIGSTOP)"),
    "a machine that vanishes takes leave": ("kill(1, signal.SIGSTOP)", "kill(1, signal.SIGKILL)"),
    "the server lives": ("words_by_trainer = kill(server)", "words_by_trainer = kill(1)"),
    "the weights of the checkpoint are never written back": (
        "reference.remote().detach().rpc_sync().copy_(values)",
        "values",
    ),
    "the checkpoint leaves the table out": (
        "[reference.to_here().detach() for reference in references(model)]",
        "[parameter.detach() for parameter in model.dense.parameters()]",
    ),
    "the checkpoint does not say where it stopped": (
        "    write_back(model, weights)\n    return number",
        "    write_back(model, weights)\n    return 0",
    ),
    "the checkpoint is stale": ("number % 10 == 9", "number == 9"),
    "nothing is restored": ("    return restore(model)", "    return 0"),
    "the trainers stop with the master": (
        "    for number in range(begin, end):\n        first = 48",
        '    for number in range(begin, end):\n        rpc.rpc_sync("master", steps_done)\n        first = 48',
    ),
    "nobody plays the master": ("outcomes = takes_over(20)", "outcomes = []"),
}
