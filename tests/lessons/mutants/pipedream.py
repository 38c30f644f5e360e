"""The lesson pipedream, broken on purpose."""

MUTANTS = {
    "weights changed in place do not hurt": ("weights[0] -= 0.01", "weights[0] - 0.01"),
    "a backward updates what its forward used": (
        "return updated(newest, gradients[:2])",
        "return updated(used, gradients[:2])",
    ),
    "all stages are equally stale": ('world.view["delays"] = delays', 'world.view["delays"] = [max(delays)] * n'),
    "PipeDream's weights are fresh": ('world.view["delays"] = delays', 'world.view["delays"] = [0] * n'),
    "the last stage is stale, too": (
        "assert stale_by == [min(i, n - 1 - rank) for i in range(batches)]",
        "assert stale_by == [min(i, n - rank) for i in range(batches)]",
    ),
    "weights are stale even with a flush": ("assert set(stale_with_flush) == {0}", "assert max(stale_with_flush) > 0"),
    "a stage keeps one version": (
        "assert [max(of_stage) for of_stage in versions] == [n - stage for stage in range(n)]",
        "assert [max(of_stage) for of_stage in versions] == [1] * n",
    ),
    "all stages are ahead by as many batches": (
        "ahead = min(stages - stage, m)",
        "ahead = min(stages, m)",
    ),
    "a pipeline without a flush drains too": (
        '"no flush": (one_forward_one_backward(rank, n, batches), 1),',
        '"no flush": (with_flush(rank, n, batches, n), 1),',
    ),
    "a flush after each costs nothing": (
        '"flush after each": (with_flush(rank, n, batches, 1), 1),',
        '"flush after each": (one_forward_one_backward(rank, n, batches), 1),',
    ),
    "a sleep is shorter than asked": ("time.sleep(seconds[kind])", "time.sleep(seconds[kind] / 2)"),
    "an old version gets the update in one process": (
        "new.append(updated(of_stage[-1], gradients[2 * stage : 2 * stage + 2]))",
        "new.append(updated(used[stage], gradients[2 * stage : 2 * stage + 2]))",
    ),
    "one process has other batches": (
        "loss, new = delayed_step(versions, delays, inputs, targets)",
        "loss, new = delayed_step(versions, delays, inputs, -targets)",
    ),
    "two versions are enough for an update after each batch": (
        "run(order, update_every=n)",
        "run(order, update_every=1)",
    ),
    "the run with a flush is drawn for PipeDream": (
        '"PipeDream": boxes["no flush"]}',
        '"PipeDream": boxes["flush after n"]}',
    ),
    "a step with a flush keeps only its last gradient": (
        "newest = backward(x, output, used, newest)",
        "newest = backward(x, output, used, weights)",
    ),
    "shared updates have a flush": (
        "run(order, update_every=n)",
        "run(with_flush(rank, n, batches, n), update_every=n)",
    ),
    "an update counts before its last backward": (
        "if (i + 1) % update_every == 0:",
        "if i % update_every == 0:",
    ),
    "the run with a flush after each is drawn for the run with a flush after n": (
        'drawn = {"1F1B with a flush after n": boxes["flush after n"], ',
        'drawn = {"1F1B with a flush after n": boxes["flush after each"], ',
    ),
    "one process keeps only its newest weights": (
        "            of_stage.append(weights_of_stage)\n    return [of_stage[-1]",
        "            of_stage[:] = [weights_of_stage]\n    return [of_stage[-1]",
    ),
}
