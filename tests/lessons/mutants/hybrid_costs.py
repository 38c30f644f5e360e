"""The lesson hybrid_costs, broken on purpose."""

MUTANTS = {
    "the gradients of the vectors have no bytes": (
        "return 8 * len(words) + 8 * len(offsets) + 2 * 4 * 16 * len(offsets)",
        "return 8 * len(words) + 8 * len(offsets) + 4 * 16 * len(offsets)",
    ),
    "a word has 4 bytes": ("return 8 * len(words) + 8", "return 4 * len(words) + 8"),
    "the table travels": (
        '    model = HybridModel(table, alone, "cpu")\n',
        '    model = HybridModel(table, alone, "cpu")\n'
        "    def forward(words, offsets):\n"
        "        weight = table.remote_parameters()[0].to_here()\n"
        "        return model.dense(nn.functional.embedding_bag(words, weight, offsets, mode='sum', sparse=sparse))\n"
        "    model.forward = forward\n",
    ),
    "trainer 0 is not alone": ('HybridModel(table, alone, "cpu")', 'HybridModel(table, None, "cpu")'),
    "dense gradients cost what sparse ones do": (
        "runs[kind, rows] = *new_hybrid(rows, sparse)",
        "runs[kind, rows] = *new_hybrid(rows, True)",
    ),
    "the batch does not count": ('"sparse, 800 passages": (True, 800)', '"sparse, 800 passages": (False, 800)'),
    "Adam is given dense gradients": ("hybrid = new_hybrid(1000)\nword", "hybrid = new_hybrid(1000, False)\nword"),
    "the steps of both places are no steps": (
        "    losses = [step(model, optimizer, data) for _ in range(3)]",
        "    losses = [step(model, new_optimizer(references(model), lr=0.0), data) for _ in range(3)]",
    ),
    "the gradients of the dense layer are a trainer's own": (
        "HybridModel(table, together, choice.device)",
        "HybridModel(table, dist.new_subgroups(1)[0], choice.device)",
    ),
    "the maps are one to one": ('f"cuda:{i // 2}" for i', 'f"cuda:{i}" for i'),
}
