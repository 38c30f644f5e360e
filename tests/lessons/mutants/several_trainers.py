"""The lesson several_trainers, broken on purpose."""

MUTANTS = {
    "adding on the owner loses increments": ("value.rpc_sync().add_(1)", "value.rpc_sync().copy_(number)"),
    "the owner holds no lock": ("    with turn:\n        slow_add(", "    if turn:\n        slow_add("),
    "an update at the owner cannot be lost": ("read = value.local_value().clone()", "read = value.local_value()"),
    "the lesson's step does not wait for its turn": (
        "    with turn, torch.no_grad():\n        values.sub_(gradient)",
        "    with torch.no_grad():\n        values.sub_(gradient)",
    ),
    "the lesson's step reads before its turn": (
        "    with turn, torch.no_grad():\n        values.sub_(gradient)",
        "    new = values.detach() - gradient\n    with turn, torch.no_grad():\n        values.copy_(new)",
    ),
    "the optimizer in turn takes its step twice": (
        'rpc.rpc_sync("server", subtract_in_turn, (context, self.parameter))',
        '[rpc.rpc_sync("server", subtract_in_turn, (context, self.parameter)) for _ in range(2)]',
    ),
    "the class without a functional implementation has one": (
        "DistributedOptimizer(PlainSGD,",
        "DistributedOptimizer(torch.optim.SGD,",
    ),
    "the whole step comes too late to make a gradient stale": (
        '    world.call("whole_step", targets=1)\n    world.call("finish_step", targets=0)',
        '    world.call("finish_step", targets=0)\n    world.call("whole_step", targets=1)',
    ),
    "the whole step never comes before the backward pass": (
        '"before backward": interrupted(1)',
        '"before backward": interrupted(2)',
    ),
    "the decoder's weights do not change": (
        "            super().step()\n            log.append((self.trainer",
        "            log.append((self.trainer",
    ),
    "a step that fails counts as an update": ('(model.trainer, "fails")', '(model.trainer, "updates")'),
    "each trainer has a decoder of its own": ("model = Model(table, decoder)", "model = Model(table)"),
    "the lesson's staleness counts from the first read": (
        "version_read[trainer] = version",
        "version_read.setdefault(trainer, version)",
    ),
    "the server lives on": ("os.kill(world.pids[-1], signal.SIGKILL)", "os.kill(world.pids[-1], signal.SIGCONT)"),
    "the weights of the checkpoint are never written back": (
        "reference.local_value().detach().copy_(values)",
        "reference.local_value()",
    ),
    "the hidden state of the checkpoint is forgotten": (
        "write, (reference, values))\n        return losses, hidden",
        "write, (reference, values))\n        return losses, None",
    ),
    "the checkpoint is of another step than it says": (
        "Checkpoint(path).save(model, losses, hidden)",
        "Checkpoint(path).save(model, losses + [0.0], hidden)",
    ),
    "the figure shows trainers that train one after another": (
        'log_at_once = world.view.pull("log_at_once", targets=0)',
        'log_at_once = world.view.pull("log_in_turn", targets=0)',
    ),
    "the step of the library is half as long": (
        "DistributedOptimizer(torch.optim.SGD, [parameter], lr=1.0)",
        "DistributedOptimizer(torch.optim.SGD, [parameter], lr=0.5)",
    ),
    "the server dies before the second checkpoint": (
        "while saved() == first and not",
        "while saved() != first and not",
    ),
    "the test of the library has three thousand parameters": (
        'parameter = rpc.rpc_sync("server", new_zeros, (3_000_000, True))',
        'parameter = rpc.rpc_sync("server", new_zeros, (3_000, True))',
    ),
    "a read is logged before its turn": (
        '        with turn:\n            log.append((trainer, "reads", time.monotonic()))\n',
        '        log.append((trainer, "reads", time.monotonic()))\n        with turn:\n',
    ),
    "an update waits for no turn": (
        "        with turn:\n            super().step()",
        "        if turn:\n            super().step()",
    ),
}
