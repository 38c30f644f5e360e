"""Checks of 33_tensor_parallel: which numbers a rank keeps, what passes f and g, and what is sent for a next word."""

import os
from contextlib import contextmanager

from helpers.checks.accepting import accept
from helpers.checks.collectives import show
from helpers.checks.judging import Verdict, Wrong, call_answer, judge
from helpers.measure.patching import replaced

_INPUTS, _HIDDEN, _OUTPUTS = 3, 4, 5  # of two layers; _HIDDEN for each rank
_HEAD_WIDTH, _HEADS = 2, 2  # heads for each rank
_TOKENS, _WORDS = 6, 7  # words for each rank


def my_columns(world) -> Verdict:
    """Check `my_columns(layer)` and `my_rows(layer)`: the shares that two layers cut so make add up to their output."""

    def check(runs):
        hidden = _HIDDEN * world.size
        for rank, run in enumerate(runs):
            _require_part(rank, "my_columns, weight", run.result[0], [_HIDDEN, _INPUTS], hidden * _INPUTS)
            _require_part(rank, "my_columns, bias", run.result[1], [_HIDDEN], hidden)
            _require_part(rank, "my_rows", run.result[2], [_OUTPUTS, _HIDDEN], _OUTPUTS * hidden)
        total = [sum(numbers) for numbers in zip(*(run.result[3] for run in runs), strict=True)]
        if not _close(total, runs[0].result[4]):
            raise Wrong(
                "All parts have the right shapes, but the shares of the ranks do not add up to the output of the two "
                "layers. The parts of all ranks are to make up the whole layer, and the rows of the second layer that "
                "a rank keeps are to fit its columns of the first."
            )
        return f"Each rank keeps 1/{world.size} of both layers, and the shares add up to their output."

    return _accepting(world, judge(world, "my_columns", check, _run_cuts), "my_rows")


def MyF(world) -> Verdict:
    """Check `my_mlp(x, up, down)`: its output and all gradients are those of one process."""

    def check(runs):
        size = world.size
        for rank, run in enumerate(runs):
            found, truth, share = run.result["output"]
            if isinstance(found, str):
                raise Wrong(f"Rank {rank} returned {found}, and the target is a tensor of the shape of x.")
            if not _close(found, truth):
                why = "only its own share of the output" if _close(found, share) else _compared(found, truth, "output")
                raise Wrong(f"Rank {rank} returned {why}. What leaves on the ranks is to be added up.")
        for name in ("down", "up"):
            for rank, run in enumerate(runs):
                found, truth, _ = run.result[name]
                if not _close(found, truth):
                    raise Wrong(
                        f"The output is right. Rank {rank} got {_compared(found, truth, f'gradient of {name}')}. All "
                        "ranks have one and the same loss, so the gradient of the output is on each of them, once."
                    )
        for rank, run in enumerate(runs):
            found, truth, share = run.result["x"]
            if not _close(found, truth):
                if not _close(found, share):
                    raise Wrong(f"The weights are right. Rank {rank} got {_compared(found, truth, 'gradient of x')}.")
                raise Wrong(
                    f"Output and gradients of the weights are right. Rank {rank} has of the gradient of x only what "
                    f"comes through its own columns; that of the other {size - 1} is to be added."
                )
        return "The output and the gradients of x and of both weights are those of one process."

    return _accepting(world, judge(world, "my_mlp", check, _run_mlp), "MyF", "MyG")


def cut_qkv(world) -> Verdict:
    """Check `cut_qkv(layer)`: of a layer for queries, keys and values the rows of this rank's heads."""
    width = _HEAD_WIDTH * _HEADS
    whole = width * world.size

    def check(runs):
        for rank, run in enumerate(runs):
            weight, bias = run.result
            if not isinstance(weight, list) or not isinstance(bias, list):
                raise Wrong(f"Rank {rank} returned {show(weight)} and {bias}; the target is a weight and a bias.")
            kept = [sum(row // whole == part for row in weight) for part in range(3)]
            if kept != [width] * 3:
                raise Wrong(
                    f"Rank {rank} keeps {kept[0]} rows of the queries, {kept[1]} of the keys and {kept[2]} of the "
                    f"values. Its heads have {width} of each."
                )
            target = [part * whole + rank * width + row for part in range(3) for row in range(width)]
            if sorted(weight) != target:
                (wrong, *_) = [row for row in weight if row not in target]
                of_rank = wrong % whole // width
                raise Wrong(f"Rank {rank} keeps row {wrong}, which belongs to the heads of rank {of_rank}.")
            if weight != target:
                raise Wrong(f"Rank {rank} keeps the right rows in the order {weight}, and the target is {target}.")
            if bias != target:
                raise Wrong(f"The weight is right. Rank {rank} keeps the biases {bias}, and the target is {target}.")
        return "Each rank has the queries, the keys and the values of its own heads."

    return judge(world, "cut_qkv", check, _run_cut_qkv)


def next_words(world) -> Verdict:
    """Check `next_words(logits)`: the best of all words for each token, for at most three numbers of each token."""

    def check(runs):
        for rank, run in enumerate(runs):
            found, target, _ = run.result
            if not isinstance(found, list) or len(found) != len(target):
                raise Wrong(f"Rank {rank} returned {show(found)}, and the target is a tensor of {len(target)} numbers.")
            if found != target:
                first, right = next((one, other) for one, other in zip(found, target, strict=True) if one != other)
                raise Wrong(f"Rank {rank} returned word {first} for a token, and the best of all words is {right}.")
        for rank, run in enumerate(runs):
            brought = run.result[2]
            if brought > 3 * _TOKENS:
                raise Wrong(
                    f"The words are right. Rank {rank} brought {brought} numbers to its collectives for {_TOKENS} "
                    f"tokens, and the target is at most {3 * _TOKENS}."
                )
        return "Every rank knows the best words, and none brought more than three numbers for each token."

    return judge(world, "next_words", check, _run_next_words)


def _accepting(world, verdict, *names):
    """Note that these answers have passed, too, if the verdict says that the function that was called has passed."""
    if verdict:
        for name in names:
            accept(world, name)
    return verdict


def _require_part(rank, name, shape, target, numbers):
    if not isinstance(shape, list):
        raise Wrong(f"Rank {rank}, {name}: it returned {shape}, and the target is a tensor.")
    kept = 1
    for side in shape:
        kept *= side
    share = 1
    for side in target:
        share *= side
    if kept != share:
        raise Wrong(f"Rank {rank}, {name}: it keeps {kept} of {numbers} numbers, and the target is {share}.")
    if shape != target:
        raise Wrong(
            f"Rank {rank}, {name}: the part has the shape {shape}, and the target is {target}. "
            "A weight is stored as (outputs, inputs)."
        )


def _close(found, truth):
    if not isinstance(found, list) or len(found) != len(truth):
        return False
    return all(abs(one - other) <= 1e-10 for one, other in zip(found, truth, strict=True))


def _compared(found, truth, name):
    """Return in words how a list of numbers differs from the true one."""
    if not isinstance(found, list):
        return f"no {name}"
    share = sum(one * other for one, other in zip(found, truth, strict=True)) / sum(number**2 for number in truth)
    if _close(found, [share * number for number in truth]):
        return f"{share:.3g} times the {name}"
    return f"another {name} than one process"


def _numbers(result):
    """Return a tensor as a list of its numbers, anything else in words."""
    import torch

    if isinstance(result, torch.Tensor):
        return result.detach().flatten().tolist()
    return "nothing" if result is None else f"a {type(result).__name__}"


def _shape(result):
    return list(result.shape) if hasattr(result, "shape") else _numbers(result)


def _run_cuts():
    import torch
    from torch import nn
    from torch.nn import functional

    size = int(os.environ["WORLD_SIZE"])
    torch.manual_seed(7)
    up = nn.Linear(_INPUTS, _HIDDEN * size, dtype=torch.float64)
    down = nn.Linear(_HIDDEN * size, _OUTPUTS, bias=False, dtype=torch.float64)
    x = torch.randn(2, _INPUTS, dtype=torch.float64)
    truth = down(functional.gelu(up(x)))
    first = call_answer("my_columns", [up])
    if first.error:
        return first
    second = call_answer("my_rows", [down])
    if second.error:
        return second
    weight, bias = first.result if isinstance(first.result, tuple | list) and len(first.result) == 2 else (None, None)
    shapes = [_shape(part) for part in (weight, bias, second.result)]
    share = []
    if shapes == [[_HIDDEN, _INPUTS], [_HIDDEN], [_OUTPUTS, _HIDDEN]]:
        share = _numbers(functional.linear(functional.gelu(functional.linear(x, weight, bias)), second.result))
    return second._replace(result=(*shapes, share, _numbers(truth)))


def _run_mlp():
    import torch
    from torch.nn.functional import gelu, linear

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(7)
    x = torch.randn(2, _INPUTS, dtype=torch.float64, requires_grad=True)
    up = torch.randn(_HIDDEN * size, _INPUTS, dtype=torch.float64, requires_grad=True)
    down = torch.randn(_INPUTS, _HIDDEN * size, dtype=torch.float64, requires_grad=True)
    output = linear(gelu(linear(x, up)), down)
    loss = (x + output).square().sum()
    of_output = torch.autograd.grad(loss, output, retain_graph=True)[0]  # and that of x past the two layers
    of_x, of_up, of_down = torch.autograd.grad(loss, [x, up, down])
    parts = [up.detach().chunk(size)[rank].clone(), down.detach().chunk(size, 1)[rank].clone()]
    mine = [tensor.requires_grad_() for tensor in (x.detach().clone(), *parts)]
    share = linear(gelu(linear(mine[0], mine[1])), mine[2])
    of_share = of_output + torch.autograd.grad(share, mine[0], of_output)[0]

    run = call_answer("my_mlp", mine)
    if run.error:
        return run
    found = {"output": (_numbers(run.result), _numbers(output), _numbers(share))}
    if isinstance(run.result, torch.Tensor) and run.result.shape == x.shape:
        try:
            (mine[0] + run.result).square().sum().backward()
        except Exception as error:
            return run._replace(error=f"{type(error).__name__}: {error}")
    elif isinstance(run.result, torch.Tensor):
        found["output"] = (f"a tensor of shape {list(run.result.shape)}", [], [])
    truths = {"x": of_x, "up": of_up.chunk(size)[rank], "down": of_down.chunk(size, 1)[rank]}
    for name, tensor in zip(truths, mine, strict=True):
        found[name] = (_numbers(tensor.grad), _numbers(truths[name]), _numbers(of_share) if name == "x" else [])
    return run._replace(result=found)


def _run_cut_qkv():
    import torch
    from torch import nn

    rows = 3 * _HEAD_WIDTH * _HEADS * int(os.environ["WORLD_SIZE"])
    layer = nn.Linear(2, rows, dtype=torch.float64)
    numbered = torch.arange(rows, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(numbered.unsqueeze(1).expand(rows, 2))
        layer.bias.copy_(numbered)
    run = call_answer("cut_qkv", [layer])
    if run.error:
        return run
    weight, bias = run.result if isinstance(run.result, tuple | list) and len(run.result) == 2 else (None, None)
    if isinstance(weight, torch.Tensor) and weight.dim() == 2:
        weight = weight[:, 0]
    parts = [_numbers(part) for part in (weight, bias)]
    return run._replace(result=[[int(row) for row in part] if isinstance(part, list) else part for part in parts])


def _run_next_words():
    import torch

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(7)
    # None is above 0, so that a 0 in place of a logit is noticed.
    whole = -1 - torch.rand(_TOKENS, _WORDS * size, dtype=torch.float64)
    with brought() as numbers:
        run = call_answer("next_words", [whole[:, rank * _WORDS : (rank + 1) * _WORDS].clone()])
    if run.error:
        return run
    sent = sum(numbers) + sum(message.bytes // 8 for message in run.messages if message.sent)
    found = _numbers(run.result)
    found = [int(word) for word in found] if isinstance(found, list) else found
    return run._replace(result=(found, whole.argmax(-1).tolist(), sent))


@contextmanager
def brought():
    """Count inside the block how many numbers this rank brings to each of its collectives."""
    import torch
    import torch.distributed as dist

    from helpers.measure.traffic import METHODS_OF_COLLECTIVES

    numbers = []

    def size(argument):
        if isinstance(argument, torch.Tensor):
            return argument.numel()
        return sum(map(size, argument))

    def counting(method):
        def call(group, *arguments, **options):
            # What goes in is the last argument that holds tensors: results stand before it.
            tensors = [argument for argument in arguments if isinstance(argument, torch.Tensor | list | tuple)]
            if tensors:
                numbers.append(size(tensors[-1]))
            return method(group, *arguments, **options)

        return call

    methods = vars(dist.ProcessGroup)
    names = [name for names in METHODS_OF_COLLECTIVES.values() for name in names if name in methods]
    with replaced([(dist.ProcessGroup, name, counting(methods[name])) for name in names]):
        yield numbers
