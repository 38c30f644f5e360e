"""The lesson hybrid_ddp_rpc, broken on purpose."""

MUTANTS = {
    "the master is in the process group, too": (
        "    if rank < trainers:\n        limit",
        "    trainers = n - 1\n    if rank < trainers:\n        limit",
    ),
    "passages run into each other": (
        "torch.tensor([0] + [len(bag) for bag in chosen[:-1]]).cumsum(0)",
        "torch.tensor([0] + [len(bag) for bag in chosen[:-1]])[:1].repeat(len(chosen))",
    ),
    "the optimizer gets the dense parameters only": (
        "return model.table.remote_parameters() + local",
        "return local",
    ),
    "the table lives on the trainer": (
        'return RemoteModule("server/cpu", Table, (len(words), 16, True, seed))',
        'return RemoteModule(f"{name}/cpu", Table, (len(words), 16, True, seed))',
    ),
    "the gradient of the table is dense": ("(len(words), 16, True, seed)", "(len(words), 16, False, seed)"),
    "local backward reaches the server": (
        "        cross_entropy(model(rows, offsets), label.to(model.device)).backward()\n    except",
        "        with dist_autograd.context() as context:\n"
        "            loss = cross_entropy(model(rows, offsets), label.to(model.device))\n"
        "            dist_autograd.backward(context, [loss])\n    except",
    ),
    "the forward of the model leaves out the table": (
        "return model.dense(model.table.forward(words, offsets).to(model.device))",
        "return model.dense(torch.zeros(len(offsets), 16, device=model.device))",
    ),
    "every epoch has the same passages": ("manual_seed(1000 * SEED + epoch)", "manual_seed(1000 * SEED)"),
    "all trainers take the same share": ("mine = numbers[rank::trainers]", "mine = numbers[::trainers]"),
    "the trainers draw different permutations": (
        "manual_seed(1000 * SEED + epoch)",
        "manual_seed(1000 * rank + epoch)",
    ),
    "each trainer has a table of its own": (
        "    model = HybridModel(table, seed=SEED)\n    optimizer",
        "    model = HybridModel(new_table(), seed=SEED)\n    optimizer",
    ),
    "the dense layers are not averaged": (
        "    loss = cross_entropy(model(rows, offsets), label.to(model.device))\n    dist_autograd",
        "    with model.dense.no_sync():\n"
        "        loss = cross_entropy(model(rows, offsets), label.to(model.device))\n    dist_autograd",
    ),
    "the optimizer never steps": ("        optimizer.step(context)\n    return loss", "    return loss"),
    "the learner's module leaves out the functions of the course": (
        'parts = ["from hybrid_model import *"]',
        'parts = ["from hybrid_model import HybridModel"]',
    ),
    "DDP leaves the first weights of each trainer as they are": (
        "self.dense = DDP(nn.Linear(16, 6).to(self.device), process_group=group)",
        "self.dense = DDP(nn.Linear(16, 6).to(self.device), process_group=group, init_sync=False)",
    ),
    "the last 32 training passages are never used": ("torch.randperm(800,", "torch.randperm(768,"),
    "the model learns half as fast": ("kind=torch.optim.SGD, lr=0.5", "kind=torch.optim.SGD, lr=0.25"),
    "a hundred training passages are for validation, too": (
        "validation = range(800, len(bags))",
        "validation = range(700, len(bags))",
    ),
    "the accuracy is of training passages": (
        "    rows, offsets, label = batch(validation)\n",
        "    rows, offsets, label = batch(range(len(validation)))\n",
    ),
    "each epoch begins with a new dense layer": (
        "    seen.append(everywhere(train, epoch))",
        "    everywhere(prepare, table)\n    seen.append(everywhere(train, epoch))",
    ),
}
