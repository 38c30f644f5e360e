"""The lesson fully_shard, broken on purpose."""

MUTANTS = {
    "ZeroRedundancyOptimizer deals out to those who have most": (
        "        least = elements_of_rank.index(min(elements_of_rank))",
        "        least = elements_of_rank.index(max(elements_of_rank))",
    ),
    "ZeroRedundancyOptimizer trains at another rate": (
        "torch.optim.Adam, lr=0.01)\nfor _",
        "torch.optim.Adam, lr=0.02)\nfor _",
    ),
    "fully_shard rounds the rows of a slice down": (
        "    most = -(-rows // n)\n    first",
        "    most = rows // n\n    first",
    ),
    "without resharding a step gathers as often": (
        "counted = {reshard: run(reshard) for reshard in (True, False)}",
        "counted = {reshard: run(True) for reshard in (True, False)}",
    ),
    "the ring is not used": (
        "with_ring = {reshard: run(reshard, Ring()) for",
        "with_ring = {reshard: run(reshard) for",
    ),
    "the ring keeps the last gradient, not the sum": (
        "            chunks[(rank - step - 2) % n].add_(arrived)",
        "            chunks[(rank - step - 2) % n].copy_(arrived)",
    ),
    "all ranks ask for the whole tensor": (
        "if rank == 0:\n    try:\n        part_of_it",
        "if rank >= 0:\n    try:\n        part_of_it",
    ),
    "mixed precision computes in float32": (
        "MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)",
        "MixedPrecisionPolicy(reduce_dtype=torch.float32)",
    ),
    "mixed precision adds up in 16 bits": (
        "MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)",
        "MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)",
    ),
    "the norm of a rank's slices is that of all": (
        "dist.all_reduce(squares)\nby_hand",
        "by_hand",
    ),
    "the checkpoint is not loaded": (
        "checkpoint.load(state, checkpoint_id=folder)\n",
        "",
    ),
    "the optimizer is not saved": (
        "loaded = everything(model, optimizer)",
        "loaded = everything(model, adam(model.parameters()))",
    ),
    "every rank is given the whole model": (
        "of_model, of_optimizer = get_state_dict(model, optimizer)\nstate =",
        "of_model, of_optimizer = get_state_dict(model, optimizer)\n"
        "of_model = {name: full(value) for name, value in of_model.items()}\nstate =",
    ),
    "the figure shows the bars of another optimizer": (
        '"fully_shard": world.view["adam_of_slices"]',
        '"fully_shard": world.view["adam_of_zero"]',
    ),
    "the bytes of the parameters do not include padding": (
        "sum(8 * n * -(-len(p) // n) * p[0].numel()",
        "sum(8 * len(p) * p[0].numel()",
    ),
    "as many ranks load a checkpoint as saved it": (
        "world = new_world(n // 2)",
        "world = new_world(n)",
    ),
    "the model that loads begins with the seed of the model that was saved": (
        'world.view["SEED"] = SEED + 7',
        'world.view["SEED"] = SEED',
    ),
}
