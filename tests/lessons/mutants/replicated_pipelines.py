"""The lesson replicated_pipelines, broken on purpose."""

MUTANTS = {
    "the mean of the losses is their sum": (
        "loss = sum(future.wait() for future in futures) / m",
        "loss = sum(future.wait() for future in futures)",
    ),
    "DDP averages nothing": (
        "return allreduce_hook(replicas, bucket)",
        "return allreduce_hook(dist.group.WORLD, bucket)",
    ),
    "all pipelines have the share of the first one": (
        "my_targets = targets.chunk(pipelines)[shard]",
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
    "fully_shard keeps all weights": (
        "assert own_shard.numel() < width * width",
        "assert own_shard.numel() == width * width",
    ),
    "no_sync reduces all the same": ("with stage.no_sync() if i < m - 1 else nullcontext():", "with nullcontext():"),
    "one backward for each is as good as one for all": (
        "sum(losses_of(m)).backward()",
        "[loss.backward() for loss in losses_of(m)]",
    ),
    "the gradient of a step without reductions is the same": (
        "with stage.no_sync() if i < m - 1 else nullcontext():",
        "with stage.no_sync():",
    ),
    "a step waits for each micro-batch": (
        "futures.append(rpc.rpc_async(next_rank, last_stage, (stage(x), target)))",
        "futures.append(rpc.rpc_async(next_rank, last_stage, (stage(x), target)))\n        futures[-1].wait()",
    ),
    "a sleep is shorter than asked": ("time.sleep(seconds[kind])", "time.sleep(seconds[kind] / 2)"),
    "a stage does several things at a time": ("    with device:\n", "    with Lock():\n"),
    "fully_shard reduces in each backward": (
        'assert collectives["reduce_scatter"] == 1',
        'assert collectives["reduce_scatter"] == 4',
    ),
    "the library's optimizer does not step": (
        "                schedule.step(target=my_targets)\n        optimizer.step()",
        "                schedule.step(target=my_targets)",
    ),
    "the library's pipelines train on the same share": (
        "schedule.step(target=my_targets)",
        "schedule.step(target=targets.chunk(pipelines)[0])",
    ),
    "gradients need no messages back": (
        "chain = (m + 2 * (stages - 1) - 1) * one_message",
        "chain = (m + stages - 2) * one_message",
    ),
    "inner modules stay gathered by default": (
        "reshard_after_forward=reshard)",
        "reshard_after_forward=False)",
    ),
    "the first pipeline is drawn twice": ('"ranks 2 and 3": boxes[2:4]}', '"ranks 2 and 3": boxes[0:2]}'),
    "the stages follow the order of GPipe": ("ahead = min(stages - stage, m)", "ahead = m"),
    "each pipeline sends the activations of the whole batch": (
        "ALPHA + samples // replicas // m * features * 4 / BANDWIDTH",
        "ALPHA + samples // m * features * 4 / BANDWIDTH",
    ),
    "the links carry 800 Mbit/s": ("ALPHA, BANDWIDTH = 0.3e-3, 100e6 / 8", "ALPHA, BANDWIDTH = 0.3e-3, 100e6"),
    "the limit is lifted before the large batch": (
        "max(seconds_by_rank)\nlifted = network.lift(world)",
        "max(seconds_by_rank)\n    lifted = network.lift(world)",
    ),
    "rank 0 stands for rank 1": ("sum(predict(1, stages, 256, 480))", "sum(predict(0, stages, 256, 480))"),
}
