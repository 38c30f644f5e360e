"""Checks of 27_pipelines: backward through a stage by messages, and the orders in which stages work."""

from helpers.checks.judging import Run, Verdict, Wrong, call_answer, judge

_WIDTH, _SAMPLES = 4, 6


def my_backward(world) -> Verdict:
    """Check `my_backward(x, output, targets)`: the gradients of every stage are those of one process."""

    def check(runs):
        for rank, run in enumerate(runs):
            if run.result == "none":
                raise Wrong(f"The parameters of stage {rank} have no gradient.")
        for rank, run in enumerate(runs):
            if run.result != "right":
                raise Wrong(f"The gradient of stage {rank} is {run.result} that of one process.")
        return "Every stage has the gradients of one process."

    return judge(world, "my_backward", check, _run_backward)


def my_order(world) -> Verdict:
    """Check `my_order(stage, stages, m)`: as short as a schedule can be, and at most `stages - stage` kept."""

    def check(runs):
        for rank, run in enumerate(runs):
            for (stages, m), orders in run.result.items():
                _require_order(rank, orders, m, "FB", {"F": 1, "B": 2}, 3 * (m + stages - 1))
                for stage, order in enumerate(orders):
                    _require_room(rank, order, "B", (stage, stages, m), min(m, stages - stage))
        return "No order ends sooner, and a stage keeps no more micro-batches than there are stages from it to the end."

    return judge(world, "my_order", check, _run_orders, "my_order", [(4, 8), (2, 3), (3, 3), (4, 2), (1, 2)])


def split_order(world) -> Verdict:
    """Check `split_order(stage, stages, m)`: with B and W apart, a bubble of (p - 1)/(3m + p - 1)."""

    def check(runs):
        for rank, run in enumerate(runs):
            for (stages, m), orders in run.result.items():
                _require_order(rank, orders, m, "FBW", {"F": 1, "B": 1, "W": 1}, 3 * m + stages - 1)
                for stage, order in enumerate(orders):
                    _require_room(rank, order, "W", (stage, stages, m), stages)
        return "The bubble is (p - 1) / (3m + p - 1): every stage waits for its first micro-batch, and never again."

    return judge(world, "split_order", check, _run_orders, "split_order", [(4, 8), (2, 3), (3, 3), (5, 7), (1, 2)])


def most_micro_batches(world) -> Verdict:
    """Check `most_micro_batches(order, stages, bytes_each, memory)`: the largest m, up to 64, that fits everywhere."""

    def check(runs):
        for rank, run in enumerate(runs):
            for name, stages, bytes_each, memory, mine, target in run.result:
                if mine != target:
                    raise Wrong(
                        f"With {name}, {stages} stages, {bytes_each} bytes for a micro-batch and {memory} in all rank "
                        f"{rank} returned {mine}, and the target is {target}."
                    )
        return "As many as fit: with GPipe's order memory sets the number, with 1F1B it is enough for any or for few."

    return judge(world, "most_micro_batches", check, _run_most)


def _require_order(rank, orders, m, kinds, durations, target):
    """Require that every stage does everything once, that no stage waits for ever, and that all end in time."""
    stages = len(orders)
    wanted = sorted((kind, number) for kind in kinds for number in range(m))
    for stage, order in enumerate(orders):
        where = f"For stage {stage} of {stages} and {m} micro-batches rank {rank} returned"
        if isinstance(order, str):
            raise Wrong(f"{where} {order}, and the target is a list of pairs such as ('F', 0).")
        for action in order:
            if action not in wanted:
                raise Wrong(f"{where} the action {action!r}, which there is not.")
        for kind, number in wanted:
            if (times := order.count((kind, number))) != 1:
                raise Wrong(f"{where} {times} times {(kind, number)!r}, and the target is once.")
    ticks, stuck = _ticks(orders, durations)
    if stuck:
        stage, action = stuck
        raise Wrong(f"With {stages} stages and {m} micro-batches stage {stage} waits for ever before {action!r}.")
    if ticks > target:
        took = f"a step takes {ticks} ticks, and the target is {target}"
        raise Wrong(f"With {stages} stages and {m} micro-batches {took}.")


def _require_room(rank, order, freed_by, case, room):
    stage, stages, m = case
    most = max(_kept(order, freed_by))
    if most > room:
        raise Wrong(
            f"For stage {stage} of {stages} and {m} micro-batches the order of rank {rank} keeps {most} micro-batches "
            f"at once, and the target is {room}."
        )


def _kept(order, freed_by="B"):
    """Return how many micro-batches a stage keeps after each action."""
    numbers = [0]
    for kind, _ in order:
        numbers.append(numbers[-1] + (kind == "F") - (kind == freed_by))
    return numbers[1:]


def _ticks(orders, durations):
    """Return when the last stage ends, and the stage that waits for ever with its action, or None."""
    ends, free, place = {}, [0] * len(orders), [0] * len(orders)
    moved = True
    while moved:
        moved = False
        for stage, order in enumerate(orders):
            while place[stage] < len(order):
                action = order[place[stage]]
                needed = _needed(*action, stage, len(orders))
                if not needed <= ends.keys():
                    break
                free[stage] = max([free[stage], *(ends[need] for need in needed)]) + durations[action[0]]
                ends[(*action, stage)] = free[stage]
                place[stage] += 1
                moved = True
    for stage, order in enumerate(orders):
        if place[stage] < len(order):
            return None, (stage, order[place[stage]])
    return max(free), None


def _needed(kind, number, stage, stages):
    """Return what must have ended, as (kind, micro-batch, stage), before this action can begin."""
    if kind == "F":
        return {("F", number, stage - 1)} if stage else set()
    if kind == "W":
        return {("B", number, stage)}
    after = {("B", number, stage + 1)} if stage < stages - 1 else set()
    return {("F", number, stage)} | after


def _run_orders(function, cases):
    results = {}
    for stages, m in cases:
        results[stages, m] = []
        for stage in range(stages):
            run = call_answer(function, [stage, stages, m])
            if run.error:
                return run
            results[stages, m].append(_pairs(run.result))
    return Run(results, [], "")


def _pairs(order):
    """Return an order as a list of pairs; in words what it is, where it is none."""
    try:
        return [(str(kind), int(number)) for kind, number in order]
    except (TypeError, ValueError):
        return f"a {type(order).__name__}" if not isinstance(order, list) else f"a list with {order[0]!r}"


def _run_most():
    def all_forward_first(stage, stages, m):
        return [("F", number) for number in range(m)] + [("B", number) for number in range(m)]

    def in_pairs(stage, stages, m):
        order = []
        for number in range(0, m, 2):
            pair = range(number, min(number + 2, m))
            order += [("F", i) for i in pair] + [("B", i) for i in pair]
        return order

    def one_of_each(stage, stages, m):
        ahead = min(stages - stage, m)
        order = [("F", number) for number in range(ahead)]
        for number in range(m):
            order.append(("B", number))
            if ahead + number < m:
                order.append(("F", ahead + number))
        return order

    schedules = {"GPipe's order": all_forward_first, "1F1B": one_of_each, "pairs": in_pairs}
    results = []
    for stages, bytes_each, memory in ((4, 100, 650), (4, 100, 400), (4, 100, 399), (3, 64, 63), (2, 10, 10)):
        room = memory // bytes_each
        for name, order in schedules.items():
            fits = [m for m in range(1, 65) if all(max(_kept(order(s, stages, m))) <= room for s in range(stages))]
            run = call_answer("most_micro_batches", [order, stages, bytes_each, memory])
            if run.error:
                return run
            results.append((name, stages, bytes_each, memory, run.result, max(fits, default=0)))
    return Run(results, [], "")


def _run_backward():
    import torch
    import torch.distributed as dist
    from torch import nn

    rank, n = dist.get_rank(), dist.get_world_size()
    with torch.random.fork_rng():
        torch.manual_seed(2)
        layers = [nn.Linear(_WIDTH, _WIDTH, dtype=torch.float64) for _ in range(n)]
        inputs, targets = torch.randn(2, _SAMPLES, _WIDTH, dtype=torch.float64)
    nn.functional.mse_loss(nn.Sequential(*layers)(inputs), targets).backward()
    true = layers[rank].weight.grad.clone()
    layers[rank].zero_grad()
    x = inputs
    for layer in layers[:rank]:
        x = layer(x)
    x = x.detach().requires_grad_(rank > 0)
    run = call_answer("my_backward", [x, layers[rank](x), targets], then="finish")
    return run._replace(result=None if run.error else _compared(layers[rank].weight.grad, true))


def _compared(gradient, true):
    import torch

    if gradient is None:
        return "none"
    if torch.allclose(gradient, true, rtol=1e-9):
        return "right"
    factor = (gradient.norm() / true.norm()).item()
    return f"{factor:.2f} times" if torch.allclose(gradient, factor * true, rtol=1e-9) else "not"
