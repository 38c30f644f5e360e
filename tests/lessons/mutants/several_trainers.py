"""The lesson several_trainers, broken on purpose."""

MUTANTS = {
    "adding there loses increments": ("number.rpc_sync().add_(1)", "number.rpc_sync().copy_(place)"),
    "the owner holds no lock": ("    with turn:\n        slow_add(", "    if turn:\n        slow_add("),
    "an update at the owner cannot be lost": ("read = number.local_value().clone()", "read = number.local_value()"),
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
    "the class that is not known is known": ("DistributedOptimizer(PlainSGD,", "DistributedOptimizer(torch.optim.SGD,"),
    "the other one's step comes too late to make a gradient stale": (
        "        if not before_backward:\n            meanwhile()\n        optimizer.step(context)",
        "        optimizer.step(context)\n    if before_backward is None:\n        meanwhile()",
    ),
    "weights that change before backward are believed": (
        "        if before_backward:\n            meanwhile()\n        dist_autograd.backward(context, [loss])",
        "        dist_autograd.backward(context, [loss])\n        if before_backward:\n            meanwhile()",
    ),
    "a trainer's own steps count as stale": (
        'rpc.rpc_sync("server", updates_of, (bias,)) - before > 1',
        'rpc.rpc_sync("server", updates_of, (bias,)) - before > 0',
    ),
    "each trainer has a decoder of its own": ("model = Model(table, decoder)", "model = Model(table)"),
    "the server lives on": ("os.kill(world.pids[-1], signal.SIGKILL)", "os.kill(world.pids[-1], signal.SIGCONT)"),
    "the weights of the checkpoint are never written back": (
        "reference.remote().detach().rpc_sync().copy_(values)",
        "values",
    ),
    "the hidden state of the checkpoint is forgotten": ("    return losses, hidden", "    return losses, None"),
    "the checkpoint is of another step than it says": (
        "            save(model, losses, hidden)\n        loss, hidden = step(model, optimizer, *window, hidden)\n"
        "        losses.append(loss)",
        "            save(model, losses + [0.0], hidden)\n"
        "        loss, hidden = step(model, optimizer, *window, hidden)\n        losses.append(loss)",
    ),
}
