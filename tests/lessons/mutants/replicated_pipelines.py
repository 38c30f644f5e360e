"""The lesson replicated_pipelines, broken on purpose."""

MUTANTS = {
    "the mean of the losses is their sum": (
        "loss = sum(future.wait() for future in losses) / m",
        "loss = sum(future.wait() for future in losses)",
    ),
    "DDP averages nothing": (
        "return allreduce_hook(replicas, bucket)",
        "return allreduce_hook(dist.group.WORLD, bucket)",
    ),
    "all pipelines have the share of the first one": (
        "my_targets = targets.chunk(pipelines)[my_pipelines_share]",
        "my_targets = targets.chunk(pipelines)[0]",
    ),
    "the last stage is not trained": (
        "references = references_to_parameters() + rpc.rpc_sync(next_rank, references_to_parameters)",
        "references = references_to_parameters()",
    ),
    "replicas begin with weights of their own, and one process with others": (
        "reference = nn.Sequential(Layer(SEED), Layer(SEED + 1))\n    optimizer",
        "reference = nn.Sequential(Layer(SEED), Layer(SEED + 2))\n    optimizer",
    ),
    "there is one all-reduce for each micro-batch": ("assert len(reduced) == 5", "assert len(reduced) == 20"),
    "the last stage sends as much as one in the middle": (
        "neighbours = (place > 0) + (place < stages - 1)",
        "neighbours = 2",
    ),
    "an all-reduce sends the gradients once": (
        "return across, 2 * (replicas - 1) / replicas * weights",
        "return across, (replicas - 1) / replicas * weights",
    ),
    "both is not averaged over the replicas": ("flat /= size // stages", "flat /= 1"),
    "the links are fast": (
        "links = network.limit(world, 8 * BANDWIDTH)",
        "links = network.limit(world, 8000 * BANDWIDTH)",
    ),
    "fully_shard keeps all weights": ("assert shard.numel() < width * width", "assert shard.numel() == width * width"),
    "the library's pipelines train on the same share": (
        "schedule.step(target=my_targets)",
        "schedule.step(target=targets.chunk(pipelines)[0])",
    ),
}
