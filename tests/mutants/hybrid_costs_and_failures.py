"""The lesson hybrid_costs_and_failures, broken on purpose."""

MUTANTS = {
    "the gradients of the vectors have no bytes": (
        "return 8 * len(words) + 8 * len(offsets) + 2 * 4 * 16 * len(offsets)",
        "return 8 * len(words) + 8 * len(offsets) + 4 * 16 * len(offsets)",
    ),
    "a word has 4 bytes": ("return 8 * len(words) + 8", "return 4 * len(words) + 8"),
    "the table travels": (
        "return self.dense(self.table.forward(words, offsets).to(self.device))",
        "weight = getattr(self.table, 'weight', None)\n"
        "        if weight is None:\n"
        "            weight = self.table.remote_parameters()[0].to_here()\n"
        "        vectors = nn.functional.embedding_bag(words, weight, offsets, mode='sum', sparse=True)\n"
        "        return self.dense(vectors.to(self.device))",
    ),
    "DDP takes no group": ("process_group=group)", "process_group=None)"),
    "the optimizer leaves the table out": ("return model.table.remote_parameters() + local", "return local"),
    "Adam is given dense gradients": ("hybrid = new_hybrid(1000)", "hybrid = new_hybrid(1000, False)"),
    "the steps of both places are no steps": (
        "    losses = [step(model, optimizer, *data) for _ in range(3)]",
        "    losses = [step(model, new_optimizer(references(model), lr=0.0), *data) for _ in range(3)]",
    ),
    "the maps are one to one": ('f"cuda:{i // 2}" for i', 'f"cuda:{i}" for i'),
    "trainer 1 vanishes without a word": ("said = kill(1)\n", "said = kill(1, signal.SIGSTOP)\n"),
    "a machine that vanishes takes leave": ("kill(1, signal.SIGSTOP)", "kill(1, signal.SIGKILL)"),
    "the weights of the checkpoint are never written back": (
        "reference.remote().detach().rpc_sync().copy_(values)",
        "values",
    ),
    "the checkpoint does not say where it stopped": ("    return number\n\ndef train", "    return 0\n\ndef train"),
}
