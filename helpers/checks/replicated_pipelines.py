"""Checks of the exercises of 28_replicated_pipelines: how stale weights are, and how to cut ranks into pipelines."""

from helpers.checks.judging import Run, Verdict, Wrong, call_answer, judge

_MIB = 2**20
_CUTS = [
    (8, 400 * _MIB, _MIB),
    (8, _MIB, 400 * _MIB),
    (8, 8 * _MIB, 12 * _MIB),
    (6, 3 * _MIB, 4 * _MIB),
    (12, 10 * _MIB, 6 * _MIB),
    (4, 10 * _MIB, 4 * _MIB),
    (4, _MIB, 0),
    (1, _MIB, _MIB),
]


def staleness(world) -> Verdict:
    """Check `staleness(order)`: for each batch, the updates between its forward and its own."""

    def check(runs):
        for rank, run in enumerate(runs):
            for name, mine, target in run.result:
                if mine != target:
                    raise Wrong(f"For {name} rank {rank} returned {mine}, and the target is {target}.")
        return "Every batch has its number, also in orders that nobody uses."

    return judge(world, "staleness", check, _run_staleness)


def best_cut(world) -> Verdict:
    """Check `best_cut(ranks, weights, activations)`: the number of stages with the fewest bytes from any rank."""

    def check(runs):
        for rank, run in enumerate(runs):
            for (ranks, weights, activations), mine in zip(_CUTS, run.result, strict=True):
                sent = {stages: _most_sent(ranks, stages, weights, activations) for stages in _divisors(ranks)}
                target = min(sent, key=sent.get)
                if mine != target:
                    case = f"{ranks} ranks, {weights / _MIB:.0f} MiB of weights and {activations / _MIB:.0f} MiB"
                    than = f", where a rank sends {sent[mine] / _MIB:.1f} MiB" if mine in sent else ""
                    raise Wrong(
                        f"For {case} of activations rank {rank} returned {mine}{than}, and the target is {target}, "
                        f"where the busiest sends {sent[target] / _MIB:.1f} MiB."
                    )
        return "Every cut is the one in which the busiest rank sends the fewest bytes."

    return judge(world, "best_cut", check, _run_best_cut)


def _divisors(ranks):
    return [stages for stages in range(1, ranks + 1) if ranks % stages == 0]


def _most_sent(ranks, stages, weights, activations):
    replicas = ranks // stages
    neighbours = min(stages - 1, 2)
    return neighbours * activations / replicas + 2 * (replicas - 1) / replicas * weights / stages


def _run_staleness():
    orders = {
        "F0 B0 F1 B1": "F0 B0 F1 B1",
        "F0 F1 B0 F2 B1 B2": "F0 F1 B0 F2 B1 B2",
        "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4": "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4",
        "F0 F1 F2 B2 B1 B0": "F0 F1 F2 B2 B1 B0",
        "F1 F0 B1 B0": "F1 F0 B1 B0",
        "an empty order": "",
    }
    results = []
    for name, text in orders.items():
        order = [(action[0], int(action[1:])) for action in text.split()]
        run = call_answer("staleness", [list(order)])
        if run.error:
            return run
        try:
            mine = [int(number) for number in run.result]
        except TypeError:
            mine = f"a {type(run.result).__name__}"
        results.append((name, mine, _stale(order)))
    return Run(results, [], "")


def _stale(order):
    updates, seen, stale = 0, {}, {}
    for kind, number in order:
        if kind == "F":
            seen[number] = updates
        else:
            stale[number] = updates - seen[number]
            updates += 1
    return [stale[number] for number in sorted(stale)]


def _run_best_cut():
    results = []
    for case in _CUTS:
        run = call_answer("best_cut", list(case))
        if run.error:
            return run
        results.append(run.result)
    return Run(results, [], "")
