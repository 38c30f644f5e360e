"""The lesson hybrid_costs, broken on purpose."""

MUTANTS = {
    "the step time grows with the words": (
        "    return torch.tensor(times, dtype=torch.float64).diff()",
        "    return torch.tensor(times, dtype=torch.float64).diff() * max(1, len(words) / 50)",
    ),
    "the lesson looks up the tables one by one": (
        'variants = {"one by one": one_by_one, "all at once": all_at_once, "in one call": lookup}',
        'variants = {"one by one": one_by_one, "all at once": all_at_once, "in one call": one_by_one}',
    ),
    "the call looks up all rows in the first table": (
        "return [table.local_value()(own, offsets) for table, own",
        "return [tables[0].local_value()(own, offsets) for table, own",
    ),
    "the vectors of the tables are averaged": (
        "return sum(self.lookup(self.tables, rows, offsets))",
        "return sum(self.lookup(self.tables, rows, offsets)) / len(rows)",
    ),
    "only one table is trained": (
        "return [parameter for module in self.modules for parameter in module.remote_parameters()]",
        "return self.modules[0].remote_parameters()",
    ),
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
    "both gradients on the server are sparse": ('sparse=kind == "sparse")', "sparse=True)"),
    "dense gradients cost what sparse ones do": (
        "        model, optimizer = new_hybrid(rows, sparse)\n        runs",
        "        model, optimizer = new_hybrid(rows, True)\n        runs",
    ),
    "the batch does not count": ('"sparse, 800 passages": (True, 800)', '"sparse, 800 passages": (False, 800)'),
    "Adam is given dense gradients": (
        "small_model, small_optimizer = new_hybrid(1000)",
        "small_model, small_optimizer = new_hybrid(1000, False)",
    ),
    "the steps of both places are no steps": (
        "timed_step(model, optimizer, place) for",
        "timed_step(model, new_optimizer(references(model), lr=0.0), place) for",
    ),
    "the gradients of the dense layer are a trainer's own": (
        "HybridModel(table, together, choice.device)",
        "HybridModel(table, dist.new_subgroups(1)[0], choice.device)",
    ),
    "the maps are one to one": ('f"cuda:{i // 2}" for i', 'f"cuda:{i}" for i'),
    "the bytes of a dense gradient are those of a sparse one": (
        "        model, optimizer = new_hybrid(rows, sparse)\n        data",
        "        model, optimizer = new_hybrid(rows)\n        data",
    ),
    "trainers that share a GPU use NCCL": ("devices.choose(3, 4, 2)", "devices.choose(3, 4, 4)"),
    "the calls made at once wait for each answer": (
        "    calls = [table.rpc_async().forward(own, offsets) for table, own in zip(tables, rows)]\n"
        "    return torch.futures.wait_all(calls)",
        "    return [table.rpc_async().forward(own, offsets).wait() for table, own in zip(tables, rows)]",
    ),
    "a large table has only a thousand rows that are used": (
        "    return words * 7919 % rows, offsets, labels",
        "    return words * 7919 % 1000, offsets, labels",
    ),
    "the batch of 800 passages has 64": (
        "hashed(range(passages), rows)\ntimes",
        "hashed(range(64), rows)\ntimes",
    ),
    "the gradients of the vectors stay on the GPU": ("        if moved.requires_grad:\n", "        if False:\n"),
    "a value that moves has one byte": ("sizes.append(moved.nbytes)", "sizes.append(moved.numel())"),
    "every model looks up 8 tables": (
        "model, optimizer = new_model(number, lookup_of_variant)",
        "model, optimizer = new_model(8, lookup_of_variant)",
    ),
    "all bytes are counted with 200 passages": (
        "        data = hashed(range(passages), rows)\n        kind",
        "        data = hashed(range(200), rows)\n        kind",
    ),
    "the small batch has 64 words": (
        "one_word = torch.zeros(3, 1, dtype=torch.int64)",
        "one_word = torch.zeros(3, 64, dtype=torch.int64)",
    ),
}
