"""The lesson faster_distributed_rnn, broken on purpose."""

MUTANTS = {
    "trainer and server compute at the same time": (
        "assert earlier.end <= later.begin",
        "assert later.end <= earlier.begin",
    ),
    "half of the logits' bytes are predicted": (
        "first_bytes = words.numel() * (8 + 2 * 4 * (width + width + size))",
        "first_bytes = words.numel() * (8 + 4 * (width + width + size))",
    ),
    "a word has 4 bytes": ("second_bytes = 8 * sent", "second_bytes = 4 * sent"),
    "every copy of a row travels": (
        "vectors = self.table.forward(rows)[places]",
        "vectors = self.table.forward(words)",
    ),
    "the logits come back in the second version": (
        "return self.decoder.forward(output, targets), hidden",
        "return cross_entropy(self.decoder.forward(output).flatten(0, 1), targets.flatten()), hidden",
    ),
    "the second version is another model": (
        "mine.remote().detach().rpc_sync().copy_(origin.to_here().detach())",
        "mine.remote().detach().rpc_sync().copy_(0 * origin.to_here().detach())",
    ),
    "adding there loses increments": ("number.rpc_sync().add_(1)", "number.rpc_sync().copy_(place)"),
    "the owner holds no lock": ("    with turn:\n", "    if turn:\n"),
    "an update at the owner cannot be lost": ("read = number.local_value().clone()", "read = number.local_value()"),
    "SGD takes its step twice": ("values.sub_(gradient)", "values.sub_(2 * gradient)"),
    "a trainer's own steps count as stale": (
        'stale += rpc.rpc_sync("server", version, (bias,)) - before > 1',
        'stale += rpc.rpc_sync("server", version, (bias,)) - before > 0',
    ),
    "the other one's step comes too late to make a gradient stale": (
        "        if not before_backward:\n            meanwhile()\n        optimizer.step(context)",
        "        optimizer.step(context)\n    if before_backward is None:\n        meanwhile()",
    ),
    "weights that change before backward are believed": (
        "        if before_backward:\n            meanwhile()\n        dist_autograd.backward(context, [loss])",
        "        dist_autograd.backward(context, [loss])\n        if before_backward:\n            meanwhile()",
    ),
    "failed steps update the decoder": ("            failed += 1", "            failed += 2"),
    "the server lives on": ("os.kill(world.pids[1], signal.SIGKILL)", "os.kill(world.pids[1], signal.SIGCONT)"),
    "the weights of the checkpoint are never written back": (
        "reference.remote().detach().rpc_sync().copy_(values)",
        "values",
    ),
}
