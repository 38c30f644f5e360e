"""The lesson pipelines, broken on purpose."""

MUTANTS = {
    "a stage passes on what it has received": ("send(output.detach(), rank + 1)", "send(x.detach(), rank + 1)"),
    "backward begins with ones": ("output.backward(gradient)\n", "output.backward(torch.ones_like(output))\n"),
    "the losses of the micro-batches are not divided": (
        "gradient /= m",
        "gradient /= 1",
    ),
    "neighbours that send to each other may both wait": (
        "works.append(dist.isend(tensor, peer))",
        "dist.send(tensor, peer)",
    ),
    "each micro-batch forgets the gradients of the one before": (
        "backward(*kept.pop(i), micro_targets[i])",
        "stage.zero_grad()\n            backward(*kept.pop(i), micro_targets[i])",
    ),
    "the bubble has p empty slots": ("predicted = (n - 1) / (m + n - 1)", "predicted = n / (m + n)"),
    "a backward can begin before that of the next stage has ended": (
        'assert later["B", i][1] <= begin',
        'assert later["B", i][1] > begin',
    ),
    "1F1B keeps one micro-batch more": ("ahead = min(stages - stage, m)", "ahead = min(stages - stage + 1, m)"),
    "GPipe keeps as few as 1F1B": ("assert kept_by_gpipe == [m] * n", "assert kept_by_gpipe == kept_by_1f1b"),
    "more micro-batches do not make a step shorter": (
        "busier = (1 - shares[8]) / (1 - shares[1])",
        "busier = (1 - shares[1]) / (1 - shares[1])",
    ),
    "a slow stage lengthens the step by its own time only": (
        "assert uneven_ticks == 6 * m + 3 * (n - 1)",
        "assert uneven_ticks == 3 * m + 3 * n",
    ),
    "no stage is slower": ("slowness = slow[rank]\n", "slowness = 1.0\n"),
    "a backward with recomputation takes 2 ticks": (
        "longer = 1 + 2",
        "longer = 2",
    ),
    "the stage recomputes nothing": ("stage = RecomputedLayer(SEED + rank)", "stage = SlowLayer(SEED + rank)"),
    "recomputation keeps as many bytes": (
        "kept_bytes(lambda x: checkpoint(four_layers, x, use_reentrant=False), x)",
        "kept_bytes(four_layers, x)",
    ),
    "GPipe is drawn twice": (
        'steps = {"GPipe": by_gpipe, "1F1B": by_1f1b}',
        'steps = {"GPipe": by_gpipe, "1F1B": by_gpipe}',
    ),
    "stage 1 is drawn for stage 0": ('"1F1B": ofob_history[0]}', '"1F1B": ofob_history[1]}'),
    "GPipe is measured twice": ('f"step({schedule}, {number})"', 'f"step(gpipe, {number})"'),
    "the even step is drawn for the uneven step": (
        '"1F1B, the last stage takes twice as long": by_uneven}',
        '"1F1B, the last stage takes twice as long": by_1f1b}',
    ),
    "a stage works in its backwards only": (
        "busy = sum(end - begin for events in events_by_stage for _, _, begin, end in events) / n",
        'busy = sum(end - begin for events in events_by_stage for kind, _, begin, end in events if kind == "B") / n',
    ),
    "the bubbles of GPipe are drawn for 1F1B, too": (
        '"1F1B": measured["one_forward_one_backward"]}',
        '"1F1B": measured["gpipe"]}',
    ),
    "the first stage is slow, not the last": (
        "slow = [1] * (n - 1) + [2]",
        "slow = [2] + [1] * (n - 1)",
    ),
}
