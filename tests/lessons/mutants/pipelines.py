"""The lesson pipelines, broken on purpose."""

MUTANTS = {
    "a stage passes on what it has received": ("send(output.detach(), rank + 1)", "send(x.detach(), rank + 1)"),
    "backward begins with ones": ("output.backward(gradient)\n", "output.backward(torch.ones_like(output))\n"),
    "the losses of the micro-batches are not divided": (
        "(mse_loss(output, targets) / m).backward()",
        "mse_loss(output, targets).backward()",
    ),
    "neighbours that send to each other may both wait": (
        "works.append(dist.isend(tensor, peer))",
        "dist.send(tensor, peer)",
    ),
    "each micro-batch forgets the gradients of the one before": (
        "backward(*kept.pop(i), micro_targets[i], m)",
        "stage.zero_grad()\n            backward(*kept.pop(i), micro_targets[i], m)",
    ),
    "the bubble has p empty slots": ("predicted = (n - 1) / (m + n - 1)", "predicted = n / (m + n)"),
    "a backward can begin before that of the next stage has ended": (
        'assert later["B", i][1] <= begin',
        'assert later["B", i][1] > begin',
    ),
    "1F1B keeps one micro-batch more": ("ahead = min(stages - stage, m)", "ahead = min(stages - stage + 1, m)"),
    "GPipe keeps as few as 1F1B": ("assert kept_by_gpipe == [m] * n", "assert kept_by_gpipe == kept_by_1f1b"),
    "1F1B keeps as many samples, whatever m": (
        "== min(m, n - rank) * samples // m",
        "== min(2, n - rank) * samples // 2",
    ),
    "more micro-batches do not make a step shorter": (
        "faster = (1 - shares[8]) / (1 - shares[1])",
        "faster = (1 - shares[1]) / (1 - shares[1])",
    ),
    "the library's 1F1B is GPipe": ("(Schedule1F1B, one_forward_one_backward)]", "(Schedule1F1B, gpipe)]"),
    "DDP with GPipe needs no shapes": ("trained(Schedule, steps=3, **shapes)", "trained(Schedule, steps=3)"),
    "the trap needs no DDP": (
        "module = DDP(Layer(SEED + my_stage), process_group=replicas)",
        "module = Layer(SEED + my_stage)",
    ),
    "all pipelines have the targets of the first one": (
        "schedule.step(target=targets.chunk(pipelines)[my_pipeline])",
        "schedule.step(target=targets.chunk(pipelines)[0])",
    ),
}
