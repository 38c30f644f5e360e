"""Exercises of 45_tensor_parallel: the parts of a rank, gradients through f and g, and the next word."""

import math
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu, linear

from helpers import tap
from helpers.checks.exam import Wrong, answer, close, compared, errors_of_answer, exercise, show
from helpers.measure.traffic import recorded

_INPUTS, _HIDDEN = 3, 4  # of two layers; _HIDDEN for each rank
_OUTPUTS = 3  # of a rank, in the layer that `my_columns` splits
_HEAD_WIDTH, _HEADS = 2, 2  # heads for each rank
_TOKENS, _WORDS = 6, 7  # words for each rank


def _judge_sum(returned):
    """Judge the partial sums of all ranks, each with the output of both layers and whether the rank has its block."""
    expected = returned[0][1]
    if not close(sum(partial_sum for partial_sum, *_ in returned), expected):
        raise Wrong(
            "All shards have the right shapes, but the partial sums of the ranks do not add up to the output of the "
            "two layers. The shards of all ranks must make up the whole layer, and a rank's rows of the second layer "
            "must fit its columns of the first."
        )
    for rank, (*_, has_its_block) in enumerate(returned):
        if not has_its_block:
            first = rank * _OUTPUTS
            raise Wrong(
                f"The partial sums add up to the output. Rank {rank} does not keep a block of consecutive outputs, "
                f"expected outputs {first} to {first + _OUTPUTS - 1} of the first layer. In attention such a block "
                "holds whole heads: try `chunk`."
            )
    return f"Each rank keeps 1/{len(returned)} of both layers, and the partial sums add up to the output."


@exercise(also=["my_rows"], together=_judge_sum)
def my_columns(exam):
    """Check `my_columns(layer)` and `my_rows(layer)`: the partial sums of two split layers add up to their output.

    Rank r keeps the r-th block of neighbouring outputs of the first layer.
    """
    # Multiples of n, so that an answer that splits the other dimension returns a part of another shape.
    inputs, hidden, outputs = exam.n, _OUTPUTS * exam.n, 2 * exam.n
    torch.manual_seed(7)
    up = nn.Linear(inputs, hidden, dtype=torch.float64)
    down = nn.Linear(hidden, outputs, bias=False, dtype=torch.float64)
    x = torch.randn(2, inputs, dtype=torch.float64)
    output = down(gelu(up(x))).detach()
    block = up.weight.detach().chunk(exam.n)[exam.rank].clone()  # the answer may change the layer
    weight, bias = _weight_and_bias(exam, exam.call(up))
    rows = exam.on_rank(answer, "my_rows", [down])
    _require_part(exam, "The weight of my_columns", weight, [_OUTPUTS, inputs], hidden * inputs)
    _require_part(exam, "The bias of my_columns", bias, [_OUTPUTS], hidden)
    _require_part(exam, "The weight of my_rows", rows, [outputs, _OUTPUTS], outputs * hidden)
    if exam.fault is not None:
        return None
    weight, bias, rows = (torch.as_tensor(part).detach().double() for part in (weight, bias, rows))
    return linear(gelu(linear(x, weight, bias)), rows), output, torch.equal(weight, block)


def _weight_and_bias(exam, result):
    """Return the weight and the bias of a result, or None for both if the result is not a pair."""
    is_pair = isinstance(result, tuple | list) and len(result) == 2
    shown = show(list(result) if isinstance(result, tuple) else result)
    exam.require(is_pair, f"Rank {exam.rank} returned {shown}, expected a weight and a bias.")
    return result if is_pair else (None, None)


def _require_part(exam, name, part, expected, elements):
    """Require that a part has the expected shape; its parameter has `elements` elements."""
    shape = list(getattr(part, "shape", ()))
    who = f"{name} on rank {exam.rank}"
    shown = show(list(part) if isinstance(part, tuple) else part)
    exam.require(hasattr(part, "shape"), f"{who} is {shown}, expected a tensor.")
    kept, share = math.prod(shape), math.prod(expected)
    exam.require(kept == share, f"{who} has {kept} of {elements} elements, expected {share}.")
    exam.require(
        shape == expected,
        f"{who} has the shape {shape}, expected {expected}. A weight is stored as (outputs, inputs).",
    )


@exercise(also=["MyG"])
def MyF(exam):
    """Check `my_mlp(x, up, down)`, which calls `MyF` and `MyG`: its output and all gradients are those of one process.

    Each rank has its own parts of `up` and `down`; x is the same on all ranks.
    """
    rank, n = exam.rank, exam.n
    torch.manual_seed(7)
    x = torch.randn(2, _INPUTS, dtype=torch.float64, requires_grad=True)
    up = torch.randn(_HIDDEN * n, _INPUTS, dtype=torch.float64, requires_grad=True)
    down = torch.randn(_INPUTS, _HIDDEN * n, dtype=torch.float64, requires_grad=True)
    output = linear(gelu(linear(x, up)), down)
    loss = (x + output).square().sum()
    of_output = torch.autograd.grad(loss, output, retain_graph=True)[0]  # also the gradient of x that skips the layers
    of_x, of_up, of_down = torch.autograd.grad(loss, [x, up, down])
    own_up, own_down = up.detach().chunk(n)[rank].clone(), down.detach().chunk(n, 1)[rank].clone()
    share = linear(gelu(linear(x, own_up)), own_down)
    of_share = of_output + torch.autograd.grad(share, x, of_output)[0]

    result, x_gradient, up_gradient, down_gradient = exam.on_rank(
        _backward_of_my_mlp, x.detach().clone(), own_up, own_down
    )
    exam.require(
        getattr(result, "shape", None) == output.shape,
        f"Rank {rank} returned {show(result)}, expected a tensor of the shape of x.",
    )
    what = "only its own partial sum of the output" if close(result, share) else compared(result, output, "output")
    exam.require(close(result, output), f"Rank {rank} returned {what}, expected the sum of all partial sums.")
    for name, gradient, expected in (("down", down_gradient, of_down.chunk(n, 1)), ("up", up_gradient, of_up.chunk(n))):
        exam.require(
            close(gradient, expected[rank]),
            f"The output is right. Rank {rank} got {compared(gradient, expected[rank], f'gradient of {name}')}, "
            "expected the gradient of one process. All ranks compute the same loss, so each rank already has the "
            "whole gradient of the output.",
        )
    if close(x_gradient, of_share) and not close(x_gradient, of_x):
        exam.refuse(
            f"Output and gradients of the weights are right. Rank {rank} got only the part of the gradient of x that "
            f"comes through its own columns, expected the sum of the parts of all {n} ranks."
        )
    exam.require(
        close(x_gradient, of_x),
        f"The weights are right. Rank {rank} got {compared(x_gradient, of_x, 'gradient of x')}, "
        "expected the gradient of one process.",
    )
    # The lesson goes on with both functions, so they must do what `my_mlp` did.
    entered, left = exam.on_rank(_through_f_and_g, x.detach())
    exam.require(
        close(entered, x.detach()) and close(left, n * x.detach()),
        "The output and the gradients are right, but `my_mlp` does the work of `MyF` or `MyG` itself, expected it to "
        "call both: the lesson goes on with them.",
    )
    return "The output and the gradients of x and of both weights are those of one process."


def _through_f_and_g(x):
    """Return x after `MyF`, and x after `MyG`."""
    return answer("MyF", [x.clone()]), answer("MyG", [x.clone()])


def _backward_of_my_mlp(x, up, down):
    """Return the output of `my_mlp`, and the gradients of x, up and down: None if the output's shape is not x's."""
    inputs = [tensor.requires_grad_() for tensor in (x, up, down)]
    output = answer("my_mlp", inputs)
    if getattr(output, "shape", None) == x.shape:
        with errors_of_answer():
            (x + output).square().sum().backward()
    result = output.detach() if isinstance(output, torch.Tensor) else output
    return result, *(tensor.grad for tensor in inputs)


@exercise
def cut_qkv(exam):
    """Check `cut_qkv(layer)`: the rows of this rank's heads in a layer for queries, keys and values."""
    rank, width = exam.rank, _HEAD_WIDTH * _HEADS
    all_rows = width * exam.n
    expected = [part * all_rows + rank * width + row for part in range(3) for row in range(width)]
    weight, bias = _weight_and_bias(exam, exam.call(_numbered_layer(3 * all_rows)))
    exam.require(
        isinstance(weight, torch.Tensor) and isinstance(bias, torch.Tensor),
        f"Rank {rank} returned {show(weight)} and {show(bias)}, expected a weight and a bias.",
    )
    rows, biases = _rows(weight), _rows(bias)
    kept = [sum(row // all_rows == part for row in rows) for part in range(3)]
    exam.require(
        kept == [width] * 3,
        f"Rank {rank} keeps {kept[0]} rows of the queries, {kept[1]} of the keys and {kept[2]} of the values, "
        f"expected {width} of each, the rows of its heads.",
    )
    for row in [row for row in rows if row not in expected][:1]:
        exam.refuse(
            f"Rank {rank} keeps row {row}, which belongs to the heads of rank {row % all_rows // width}, "
            f"expected {expected}."
        )
    exam.require(sorted(rows) == expected, f"Rank {rank} keeps the rows {rows}, expected {expected}.")
    exam.require(rows == expected, f"Rank {rank} keeps the right rows in the order {rows}, expected {expected}.")
    exam.require(
        biases == expected,
        f"The weight is right. Rank {rank} keeps the biases {biases}, expected {expected}.",
    )
    shape = list(getattr(weight, "shape", ()))
    exam.require(
        shape == [3 * width, 2],
        f"Rank {rank} keeps the right rows, but returned a weight of shape {shape}, expected {[3 * width, 2]}: the "
        "heads split only the outputs of the layer.",
    )
    return "Each rank has the queries, the keys and the values of its own heads."


def _numbered_layer(rows):
    """Return a layer whose weights and biases equal the number of their row."""
    layer = nn.Linear(2, rows, dtype=torch.float64)
    numbers = torch.arange(rows, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(numbers.unsqueeze(1).expand(rows, 2))
        layer.bias.copy_(numbers)
    return layer


def _rows(part):
    """Return the row numbers in a weight or a bias, or [] if it is not a tensor."""
    if not isinstance(part, torch.Tensor):
        return []
    return (part[:, :1] if part.ndim == 2 else part).flatten().long().tolist()


@exercise
def next_words(exam):
    """Check `next_words(logits)`: the best of all words for each token, with at most three values sent for each token.

    The check calls it twice with the same logits; each rank has the logits of its own words.
    """
    rank = exam.rank
    torch.manual_seed(7)
    # All logits are below 0, so that a 0 instead of a logit fails.
    logits = -1 - torch.rand(_TOKENS, _WORDS * exam.n, dtype=torch.float64)
    own = logits[:, rank * _WORDS : (rank + 1) * _WORDS]
    result = exam.call(own.clone())
    words = result.flatten().tolist() if isinstance(result, torch.Tensor) else []
    exam.require(
        len(words) == _TOKENS, f"Rank {rank} returned {show(result)}, expected a tensor of {_TOKENS} elements."
    )
    for word, expected in zip(words, logits.argmax(-1).tolist(), strict=False):
        if word != expected:
            exam.refuse(f"Rank {rank} returned word {word} for a token, expected {expected}, the best of all words.")
            break
    exam.require(
        not words or not result.is_floating_point(),
        f"The words are right. Rank {rank} returned a tensor of {getattr(result, 'dtype', None)}, expected a tensor of "
        "integers.",
    )
    brought = exam.on_rank(_numbers_brought, own.clone())
    brought += sum(message.bytes // 8 for message in exam.messages if message.sent)
    exam.require(
        brought <= 3 * _TOKENS,
        f"The words are right. Rank {rank} passed {brought} values to its collectives for {_TOKENS} tokens, "
        f"expected at most {3 * _TOKENS}.",
    )
    return "Every rank knows the best words, and no rank passed more than three values per token."


@exercise
def my_cross_entropy(exam):
    """Check `my_cross_entropy(logits, targets)`: the loss and the gradient of one process, with few values sent.

    Each rank has the logits of its own words. They are so large that their exponentials overflow.
    """
    rank, tokens = exam.rank, 2 * _TOKENS
    torch.manual_seed(7)
    logits = 1000 + 3 * torch.randn(2, _TOKENS, _WORDS * exam.n, dtype=torch.float64)
    targets = torch.randint(_WORDS * exam.n, (2, _TOKENS))
    whole = logits.clone().requires_grad_()
    expected = cross_entropy(whole.flatten(0, 1), targets.flatten())
    expected.backward()
    words = slice(rank * _WORDS, (rank + 1) * _WORDS)
    loss, gradient, brought = exam.on_rank(_loss_and_gradient, logits[..., words].clone(), targets)
    exam.require(
        isinstance(loss, torch.Tensor) and loss.numel() == 1,
        f"Rank {rank} returned {show(loss)}, expected the mean loss, a tensor with one element.",
    )
    exam.require(
        not isinstance(loss, torch.Tensor) or bool(loss.isfinite().all()),
        f"Rank {rank} returned {show(loss)}, expected {show(expected.item())}. Subtract the largest logit of all "
        "words before `exp`.",
    )
    exam.require(
        close(torch.as_tensor(loss).reshape(()) if isinstance(loss, torch.Tensor) else None, expected.detach()),
        f"Rank {rank} returned {show(loss)}, expected {show(expected.item())}, the mean over all tokens, "
        f"with {_WORDS} words on each rank.",
    )
    own = whole.grad[..., words]
    exam.require(
        close(gradient, own),
        f"The loss is right. Rank {rank} got {compared(gradient, own, 'gradient of its logits')}, expected the "
        "gradient of one process. The gradients of sums pass through `g`.",
    )
    exam.require(
        brought <= 3 * tokens,
        f"The loss and its gradient are right. Rank {rank} passed {brought} values to its collectives for {tokens} "
        f"tokens, expected at most {3 * tokens}.",
    )
    return "Every rank has the loss and the gradient of one process, for three values per token."


def _loss_and_gradient(logits, targets):
    """Return the loss of `my_cross_entropy`, the gradient of the logits, and how many values this rank sent for it."""
    logits.requires_grad_()
    with _brought() as numbers, recorded() as messages:
        loss = answer("my_cross_entropy", [logits.clone(), targets])  # no leaf, so that the answer may change it
    if isinstance(loss, torch.Tensor) and loss.numel() == 1 and loss.requires_grad:
        with errors_of_answer():
            loss.backward()
    sent = sum(message.bytes // 8 for message in messages if message.sent)
    return loss.detach() if isinstance(loss, torch.Tensor) else loss, logits.grad, sum(numbers) + sent


def _numbers_brought(logits):
    """Return how many values `next_words` passes to its collectives on this rank."""
    with _brought() as numbers:
        answer("next_words", [logits])
    return sum(numbers)


@contextmanager
def _brought():
    """Yield a list of how many values this rank passes to each collective inside the block."""
    numbers = []

    def count(event):
        numbers.append(sum(tensor.numel() for tensor in event.inputs))

    with tap.subscribed(tap.Collective, begin=count):
        yield numbers
