"""The lesson hybrid_ddp_rpc, broken on purpose."""

MUTANTS = {
    "a rank more is in the process group": (
        "    if rank < 2:\n        dist.init",
        "    if rank < 3:\n        dist.init",
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
        'return RemoteModule("server/cpu", Table, (len(words), 16))',
        'return RemoteModule(f"{name}/cpu", Table, (len(words), 16))',
    ),
    "the gradient of the table is dense": ('mode="sum", sparse=True', 'mode="sum", sparse=False'),
    "local backward reaches the server": (
        "        loss.backward()\n    except RuntimeError as error:",
        "        dist_autograd.backward(context, [loss])\n    except RuntimeError as error:",
    ),
    "both trainers take the same half": ("mine = numbers[rank::2]", "mine = numbers[::2]"),
    "the trainers draw different permutations": (
        "manual_seed(1000 * SEED + epoch)",
        "manual_seed(1000 * rank + epoch)",
    ),
    "each trainer has a table of its own": (
        "    model = HybridModel(table)\n    optimizer",
        "    model = HybridModel(new_table())\n    optimizer",
    ),
    "the dense layers are not averaged": (
        "    loss = cross_entropy(model(rows, offsets), label.to(model.device))\n    dist_autograd",
        "    with model.dense.no_sync():\n"
        "        loss = cross_entropy(model(rows, offsets), label.to(model.device))\n    dist_autograd",
    ),
    "the optimizer never steps": ("        optimizer.step(context)\n    return loss", "    return loss"),
}
