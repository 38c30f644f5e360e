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
    "weights changed in place do not hurt": ("weights[0] -= 0.01", "weights[0] - 0.01"),
    "PipeDream's weights are fresh": (
        "delayed(batches, lambda stage: n - 1 - stage)",
        "delayed(batches, lambda stage: 0)",
    ),
    "all stages are equally late": (
        "delayed(batches, lambda stage: n - 1 - stage)",
        "delayed(batches, lambda stage: n - 1)",
    ),
    "one version of the weights is enough": ("assert most_versions == n - rank", "assert most_versions == 1"),
    "PipeDream updates what forward has seen": (
        "weights = updated(weights, gradients[:2])",
        "weights = updated(used, gradients[:2])",
    ),
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
