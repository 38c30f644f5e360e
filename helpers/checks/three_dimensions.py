"""Checks of 35_three_dimensions: who is in a group, a step in three dimensions, and what it takes beside gradients.

They build on names that the cells of the lesson define: `my_part`, `run_block`, `group`, `CUT` and the batch.
"""

import itertools

from helpers.checks.collectives import show
from helpers.checks.judging import Run, Verdict, Wrong, call_answer, judge

_AXES = "data", "pipeline", "tensor"
_BILLION = 10**9
_true = []  # on a rank: the gradients of the whole model
# Parameters, ranks, stage of ZeRO, bytes of room on each.
_TRAININGS = (
    (7 * _BILLION, 8, 0, 80 * _BILLION),
    (76 * _BILLION, 1024, 0, 80 * _BILLION),
    (76 * _BILLION, 1024, 1, 80 * _BILLION),
    (76 * _BILLION, 1024, 2, 80 * _BILLION),
    (76 * _BILLION, 1024, 3, 80 * _BILLION),
    (20 * _BILLION, 6, 1, 60 * _BILLION),
    (76 * _BILLION, 8, 3, 80 * _BILLION),
    (_BILLION, 1, 2, 16 * _BILLION),
)


def my_members(world) -> Verdict:
    """Check `my_members(rank, layout, axis)`: the ranks that differ from this one along that axis only."""
    cases = [(rank, layout, axis) for layout in _layouts(world.size) for axis in _AXES for rank in range(world.size)]

    def check(runs):
        for here, run in enumerate(runs):
            for (rank, layout, axis), found in zip(cases, run.result, strict=True):
                target = _line(rank, layout, axis)
                if found != target:
                    raise Wrong(
                        f"In the layout {_name(layout)}, for rank {rank} along {axis}, rank {here} returned "
                        f"{found}, and the target is {target}."
                    )
        return f"Every rank knows its neighbours in {len(_layouts(world.size))} layouts."

    return judge(world, "my_members", check, _run_members, cases)


def my_step(world) -> Verdict:
    """Check `my_step(blocks, layout)`: it leaves the gradients of one process, in one layout after another."""
    tried = [((axis, world.size),) for axis in ("data", "tensor", "pipeline")]
    in_order = [layout for layout in _layouts(world.size) if _in_order(layout)]
    tried += [layout for layout in in_order if len(layout) == len(in_order[-1])][-2:]  # several axes at once
    for layout in tried:
        verdict = judge(world, "my_step", _check_step(layout), _run_step, layout, layout == tried[0])
        if not verdict:
            return verdict
    return Verdict(True, f"The gradients are those of one process in {len(tried)} layouts, up to {_name(tried[-1])}.")


def whole_norm(world) -> Verdict:
    """Check `whole_norm(blocks, layout)`: the norm of the gradient of the whole model, on every rank."""
    layouts = [layout for layout in _layouts(world.size) if _in_order(layout)]

    def check(runs):
        for place, layout in enumerate(layouts):
            for rank, run in enumerate(runs):
                found, target = run.result[place]
                if not isinstance(found, float) or abs(found - target) > 1e-9 * target:
                    shown = f"{found:.4f}" if isinstance(found, float) else found
                    raise Wrong(
                        f"In the layout {_name(layout)} rank {rank} returned {shown}, and the target is {target:.4f}."
                    )
        return f"Every rank has the norm of the whole gradient, in {len(layouts)} layouts."

    return judge(world, "whole_norm", check, _run_norm, layouts)


def send_cut(world) -> Verdict:
    """Check `send_cut` and `receive_cut`: each tensor rank sends its part to the next stage, and all get the whole."""
    ranks = world.size // 2

    def check(runs):
        for rank, run in enumerate(runs):
            sent, size, equal = run.result
            if rank >= ranks and not equal:
                raise Wrong(f"Rank {rank} has not received what rank {rank - ranks} was given to send.")
            if rank < ranks and sent != size // ranks:
                raise Wrong(
                    f"Rank {rank} sent {sent} bytes to the next stage, and the target is {size // ranks}: one of "
                    f"{ranks} parts of {size} bytes."
                )
        return f"Every rank of the next stage has the whole, and each of {ranks} has sent one part in {ranks}."

    return judge(world, "send_cut", check, _run_cut, ranks)


def fewest_cuts(world) -> Verdict:
    """Check `fewest_cuts(parameters, gpus, stage, room)`: the smallest number of ranks that share a replica."""

    def check(runs):
        for rank, run in enumerate(runs):
            for case, found in zip(_TRAININGS, run.result, strict=True):
                parameters, gpus, stage, room = case
                target = _fewest_cuts(*case)
                if found != target:
                    needs = f", which leaves {_states(*case[:3], target) / _BILLION:.1f} GB" if target else ""
                    raise Wrong(
                        f"For {parameters / _BILLION:g} billion parameters, {gpus} GPUs with room for "
                        f"{room / _BILLION:g} GB and ZeRO stage {stage} rank {rank} returned {show(found)}, and the "
                        f"target is {target}{needs}."
                    )
        return f"Every rank found the fewest cuts for each of {len(_TRAININGS)} trainings."

    return judge(world, "fewest_cuts", check, _run_cases, "fewest_cuts", _TRAININGS)


def _layouts(n):
    """Return every layout of so many ranks: each way to cut them, with its axes in each order."""
    layouts = set()
    for sizes in itertools.product(range(1, n + 1), repeat=3):
        if sizes[0] * sizes[1] * sizes[2] == n:
            pairs = [pair for pair in zip(_AXES, sizes, strict=True) if pair[1] > 1]
            layouts.update(itertools.permutations(pairs))
    return sorted(layouts, key=lambda layout: (len(layout), layout))


def _in_order(layout):
    return [axis for axis, _ in layout] == sorted(axis for axis, _ in layout)


def _name(layout):
    return " x ".join(f"{axis} {size}" for axis, size in layout)


def _line(rank, layout, axis):
    stride, size = 1, 1
    for name, length in reversed(layout):
        if name == axis:
            size = length
            break
        stride *= length
    first = rank - rank // stride % size * stride
    return [first + step * stride for step in range(size)]


def _states(parameters, gpus, stage, cuts):
    """Return the bytes of model states on each GPU, with ZeRO among the replicas."""
    replicas = gpus // cuts
    whole = sum((12, 2, 2)[stage:])
    return parameters * (whole + (16 - whole) / replicas) / cuts


def _fewest_cuts(parameters, gpus, stage, room):
    for cuts in range(1, gpus + 1):
        if gpus % cuts == 0 and _states(parameters, gpus, stage, cuts) <= room:
            return cuts
    return None


def _check_step(layout):
    def check(runs):
        for rank, run in enumerate(runs):
            if run.result:
                raise Wrong(f"In the layout {_name(layout)}, on rank {rank}, {run.result}.")
        return ""

    return check


def _run_members(cases):
    return _run_cases("my_members", cases)


def _run_cases(function, cases):
    found = []
    for case in cases:
        run = call_answer(function, list(case))
        if run.error:
            return run
        found.append(list(run.result) if isinstance(run.result, range | tuple) else run.result)
    return Run(found, [], "")


def _run_step(layout, is_first):
    """Run the answer, and return in words what is wrong with its gradients, None if nothing is."""
    import __main__
    from helpers.measure.patching import replaced

    if is_first:
        _true[:] = _true_gradients()
    samples = []
    run_block = __main__.run_block

    def counted(x_BSD, weights, tensor):
        samples.append(len(x_BSD))
        return run_block(x_BSD, weights, tensor)

    blocks = __main__.my_part(layout)
    with replaced([(__main__, "run_block", counted)]):
        run = call_answer("my_step", [blocks, layout])
    if run.error:
        return run
    through_a_block = sum(samples) // len(blocks)
    share = len(__main__.batch_BSD) // dict(layout).get("data", 1)
    if through_a_block > share:
        return run._replace(result=f"{through_a_block} samples went through a block, and the target is {share}")
    return run._replace(result=_difference(blocks, _shares(_true, layout)))


def _true_gradients():
    """Return the gradients of the whole model, by block and name, as one process finds them."""
    from torch.nn.functional import mse_loss

    import __main__

    blocks = __main__.my_part(())
    out = __main__.batch_BSD
    for weights in blocks:
        out = __main__.run_block(out, weights, None)
    mse_loss(out, __main__.target_BSD).backward()
    return [{name: weight.grad for name, weight in block.items()} for block in blocks]


def _shares(whole, layout):
    """Return what this rank has, in the layout, of tensors that are given for every block of the model."""
    import torch.distributed as dist

    import __main__

    rank, size = dist.get_rank(), dict(layout)
    stage = _line(rank, layout, "pipeline").index(rank)
    share = _line(rank, layout, "tensor").index(rank)
    there = len(whole) // size.get("pipeline", 1)

    def cut(name, tensor):
        dimension = __main__.CUT[name]
        return tensor if dimension is None else tensor.chunk(size.get("tensor", 1), dimension)[share]

    blocks = whole[stage * there : (stage + 1) * there]
    return [{name: cut(name, tensor) for name, tensor in block.items()} for block in blocks]


def _difference(blocks, true):
    for number, (block, true_block) in enumerate(zip(blocks, true, strict=True)):
        for name, target in true_block.items():
            which = f"the gradient of {name} in its block {number}"
            found = block[name].grad
            if found is None:
                return f"{which} is None"
            if (found - target).abs().max() > 1e-10 * target.abs().max():
                factor = (found.norm() / target.norm()).item()
                multiple = (found - factor * target).abs().max() <= 1e-10 * found.abs().max()
                return f"{which} is {factor:.3g} times the true one" if multiple else f"{which} is not the true one"
    return None


def _run_norm(layouts):
    import torch

    import __main__

    found = []
    for layout in layouts:
        torch.manual_seed(1)
        whole = __main__.my_part(())
        gradients = [{name: torch.randn_like(weight) for name, weight in block.items()} for block in whole]
        target = sum(gradient.pow(2).sum() for block in gradients for gradient in block.values()).sqrt().item()
        blocks = __main__.my_part(layout)
        for block, share in zip(blocks, _shares(gradients, layout), strict=True):
            for name, weight in block.items():
                weight.grad = share[name].clone()
        run = call_answer("whole_norm", [blocks, layout])
        if run.error:
            return run
        norm = run.result.item() if isinstance(run.result, torch.Tensor) and run.result.numel() == 1 else run.result
        found.append((norm if isinstance(norm, float) else show(norm), target))
    return Run(found, [], "")


def _run_cut(ranks):
    import torch
    import torch.distributed as dist

    import __main__
    from helpers.measure.traffic import by_group

    rank = dist.get_rank()
    layout = ("pipeline", 2), ("tensor", ranks)
    whole = torch.arange(4.0 * ranks * 6).reshape(4 * ranks, 2, 3) + 1
    first = rank < ranks
    given = whole.clone() if first else torch.zeros_like(whole)
    function, partner = ("send_cut", rank + ranks) if first else ("receive_cut", rank - ranks)
    with by_group() as handed:
        run = call_answer(function, [given, partner, __main__.group("tensor", layout)])
    if run.error:
        return run
    sent = sum(message.bytes for message in run.messages if message.sent and (message.peer < ranks) != first)
    sent += sum(size for members, size in handed.items() if min(members) < ranks <= max(members))
    equal = isinstance(run.result, torch.Tensor) and torch.equal(run.result, whole)
    return run._replace(result=(sent, whole.nbytes, equal))
