"""Exercises of 48_experts: an exchange of rows with a gradient, dispatch and combine, two experts, and a bias."""

import torch
import torch.distributed as dist

from helpers import tap
from helpers.checks.exam import (
    AnswerError,
    answer,
    called,
    close,
    errors_of_answer,
    exercise,
    has_shape,
    number,
    rounded,
    show,
)
from helpers.checks.judging import RESTART
from helpers.measure.traffic import collectives

_WIDTH = 2
_SPEED = 0.25
_ONLY_HERE, _ONLY_ELSEWHERE = "a graph here, but not on all ranks", "a graph on other ranks only"


@exercise
def MyExchange(exam):
    """Check `MyExchange`, an autograd.Function: rows for each rank, and the gradients back to the ranks of the rows."""
    rank, n = exam.rank, exam.n
    for case, counts in _counts(n).items():
        sent, received = counts[rank].tolist(), counts[:, rank].tolist()
        rows = _numbered(rank, sum(sent))
        result, gradient, changed, _ = exam.on_rank(
            _output_and_gradient, "MyExchange", rows, sent, received, rank + 1.0
        )
        expected = torch.cat([_block(counts, source, rank) for source in range(n)])
        if not exam.require(
            has_shape(result, expected),
            f"With {case}, rank {rank} received {show(result)}, expected a tensor of shape {list(expected.shape)}.",
        ):
            continue
        exam.require(
            close(result, expected, 1e-9),
            f"With {case}, rank {rank} received {rounded(result)}, expected {rounded(expected)}.",
        )
        scales = (torch.arange(n) + 1.0).double().repeat_interleave(counts[rank])
        expected = 2 * scales[:, None] * rows
        _require_gradient(exam, f"The rows are right. With {case},", gradient, expected)
        if not close(gradient, expected, 1e-9) and close(gradient, _sent_as_forward(counts, rank), 1e-9):
            return None  # on all ranks; with uneven splits some would raise an error, and the others would wait
        exam.require(
            not changed, f"With {case}, `backward` changed its argument on rank {rank}, expected it unchanged."
        )
    return "Every rank has received its rows, and the gradient of each row is back on the rank that sent the row."


@exercise
def my_dispatch(exam):
    """Check `my_dispatch(tokens, expert_of_token)`: each token is on the rank of its expert, with the right plan."""
    rank, n = exam.rank, exam.n
    chosen = _none_for_the_last(n, rank)
    exam.on_rank(_dispatched, _numbered(rank, len(chosen)), chosen, 1.0)
    for case, choices in _choices(n).items():
        tokens, chosen = _numbered(rank, len(choices[rank])), torch.tensor(choices[rank], dtype=torch.int64)
        rows, plan, gradient, calls = exam.on_rank(_dispatched, tokens, chosen, rank + 1.0)
        counts = _tally(choices, n)
        of_expert = [_numbered(source, len(choices[source]))[_places(choices, source, rank)] for source in range(n)]
        expected = torch.cat(of_expert)
        if not exam.require(
            has_shape(rows, expected),
            f"With {case}, rank {rank} received {show(rows)}, expected the {len(expected)} tokens of expert {rank}, a "
            f"tensor of shape {list(expected.shape)}.",
        ):
            continue
        same = [
            close(_sorted(part), part_expected, 1e-9)
            for part, part_expected in zip(rows.split(counts[:, rank].tolist()), of_expert, strict=True)
        ]
        exam.require(
            all(same),
            f"With {case}, rank {rank} received {rounded(rows)}, expected the tokens of expert {rank}: "
            f"{rounded(expected)}, first those of rank 0.",
        )
        _require_plan(exam, case, plan, tokens, chosen, counts)
        scales = (chosen + 1.0).double()
        _require_gradient(exam, f"Rows and plan are right. With {case},", gradient, 2 * scales[:, None] * tokens)
        exam.require(
            sum(calls.values()) <= 2 and "all_to_all" in calls,
            f"Rows, plan and gradients are right. Rank {rank} called {called(calls)}, expected at most two "
            "collectives, and an all_to_all for the rows.",
        )
    return "Each token is on the rank of its expert, and its gradient on the rank of the token."


@exercise
def my_combine(exam):
    """Check `my_combine(outputs, plan)`: the outputs are back on the ranks of their tokens, in their order."""
    rank, n = exam.rank, exam.n
    for case, choices in _choices(n).items():
        counts = _tally(choices, n)
        chosen = torch.tensor(choices[rank], dtype=torch.int64)
        order = chosen.argsort(descending=False, stable=True)
        order = torch.cat([part.flip(0) for part in order.split(counts[rank].tolist())])
        plan = order, counts[rank].tolist(), counts[:, rank].tolist()
        arrived = []
        for source in range(n):
            places = _places(choices, source, rank).flip(0)
            arrived.append(_numbered(source, len(choices[source]))[places])
        outputs = torch.cat(arrived) + 0.5
        result, gradient, changed, calls = exam.on_rank(_output_and_gradient, "my_combine", outputs, plan, rank + 1.0)
        expected = _numbered(rank, len(chosen)) + 0.5
        if not exam.require(
            has_shape(result, expected),
            f"With {case}, rank {rank} returned {show(result)}, expected an output for each of its {len(chosen)} "
            f"tokens, a tensor of shape {list(expected.shape)}.",
        ):
            continue
        exam.require(
            close(result, expected, 1e-9),
            f"With {case}, rank {rank} returned {rounded(result)}, expected {rounded(expected)}, in the order of the "
            "tokens.",
        )
        homes = torch.arange(n).repeat_interleave(counts[:, rank])
        scales = (homes + 1.0).double()
        _require_gradient(exam, f"The outputs are right. With {case},", gradient, 2 * scales[:, None] * outputs)
        exam.require(
            not changed,
            f"With {case}, `my_combine` or its backward pass changed its argument on rank {rank}, expected it "
            "unchanged.",
        )
        exam.require(
            calls == {"all_to_all": 1},
            f"Outputs and gradients are right. Rank {rank} called {called(calls)}, expected 1 all_to_all.",
        )
    return "Every output is in the place of its token, and gradients reach the experts."


@exercise
def two_experts(exam):
    """Check `two_experts(tokens, expert_of_token, apply)`: two experts on each rank, each with only its own tokens."""
    rank, n = exam.rank, exam.n
    for case, choices in _choices(2 * n, ranks=n).items():
        tokens, chosen = _numbered(rank, len(choices[rank])), torch.tensor(choices[rank], dtype=torch.int64)
        result, gradient, applied = exam.on_rank(_through_two_experts, tokens, chosen, rank + 1.0)
        expected = (chosen + 1.0).double()[:, None] * tokens
        if not exam.require(
            has_shape(result, expected),
            f"With {case}, rank {rank} returned {show(result)}, expected a tensor of shape {list(expected.shape)}.",
        ):
            continue
        exam.require(
            close(result, expected, 1e-9),
            f"With {case}, rank {rank} returned {rounded(result)}, expected {rounded(expected)}. Expert e multiplies "
            "its rows by e + 1.",
        )
        factor = (chosen + 1.0).double()[:, None]
        _require_gradient(
            exam, f"The outputs are right. With {case},", gradient, 2 * (rank + 1.0) * factor * factor * tokens
        )
        counts = _tally(choices, 2 * n).sum(dim=0)
        for expert in (2 * rank, 2 * rank + 1):
            exam.require(
                sum(count for name, count in applied if name == expert) == counts[expert],
                f"Outputs and gradients are right. With {case}, expert {expert} computed "
                f"{sum(count for name, count in applied if name == expert)} rows, expected {counts[expert]}.",
            )
        exam.require(
            {name for name, _ in applied} <= {2 * rank, 2 * rank + 1},
            f"Rank {rank} applied the experts {sorted({name for name, _ in applied})}, expected only {2 * rank} and "
            f"{2 * rank + 1}.",
        )
    return "Every token passed through its expert, and every expert computed only its own tokens."


@exercise
def new_bias(exam):
    """Check `new_bias(bias, chosen, speed)`: the bias moves by the sign of each expert's load over all ranks."""
    rank, n = exam.rank, exam.n
    exam.call(torch.zeros(n, dtype=torch.float64), _none_for_the_last(n, rank).unsqueeze(1), _SPEED)
    pairs = [[source, (source + 1) % n] * (source + 1) for source in range(n)]
    for case, choices in {**_choices(n), "two experts for each token": pairs}.items():
        bias = torch.arange(n).double() / 8
        before = bias.clone()
        experts_of_token = 2 if choices is pairs else 1
        chosen = torch.tensor(choices[rank], dtype=torch.int64).reshape(-1, experts_of_token)
        result = exam.call(bias, chosen, _SPEED)
        loads = _tally(choices, n).sum(dim=0).double()
        expected = before - _SPEED * (loads - loads.mean()).sign()
        if exam.require(
            isinstance(result, torch.Tensor) and result.shape == expected.shape,
            f"With {case}, rank {rank} returned {show(result)}, expected a tensor of shape [{n}].",
        ):
            exam.require(
                close(result.double(), expected, 1e-9),
                f"With {case}, the experts got {[int(load) for load in loads]} tokens of all ranks, and rank {rank} "
                f"returned {rounded(result)}, expected {rounded(expected)}.",
            )
            exam.require(torch.equal(bias, before), f"Rank {rank} changed its argument `bias`, expected it unchanged.")
    return "Every rank has the same new bias, from the loads over all ranks."


def _counts(n):
    """Return, by the name of the case, how many rows each rank sends to each other rank.

    In the first case each rank sends as many rows as it receives, so even a wrong backward pass runs to its end.
    """
    ranks = torch.arange(n)
    shifted = torch.ones(n, n, dtype=torch.int64)
    shifted[ranks, (ranks + 1) % n] = 2
    uneven = (ranks[:, None] + 2 * ranks) % 3
    last = torch.zeros(n, n, dtype=torch.int64)
    last[:, -1] = ranks + 1
    return {"equal totals": shifted, "uneven splits": uneven, "all rows for the last rank": last}


def _sent_as_forward(counts, rank):
    """Return the gradient of a rank's rows if each rank sends gradients by the split sizes of the forward pass."""
    parts = []
    for source in range(len(counts)):
        arrived = torch.cat([_block(counts, other, source) for other in range(len(counts))])
        parts.append((2 * (source + 1.0) * arrived).split(counts[source].tolist())[rank])
    return torch.cat(parts)


def _choices(experts, ranks=None):
    """Return, by the name of the case, the expert of each token of each rank."""
    ranks = ranks or experts
    mixed = [[(token * token + rank) % experts for token in range(5 + rank)] for rank in range(ranks)]
    return {
        "mixed tokens": mixed,
        "all tokens for the last expert": [[experts - 1] * (2 + rank) for rank in range(ranks)],
        "no tokens on rank 0": [[], *mixed[1:]],
        "a token for each expert": [list(reversed(range(experts))) for _ in range(ranks)],
        "one more token for the last expert": [[*range(experts), *[experts - 1] * (not rank)] for rank in range(ranks)],
    }


def _none_for_the_last(n, rank):
    """Return the experts of a rank's tokens, all but the last expert, on every rank.

    `bincount` without `minlength` then returns n - 1 counts on every rank, and an answer raises an error. If only some
    ranks had too few counts, gloo would abort a rank, which explains nothing.
    """
    return torch.tensor([max(n - 2 - token, 0) for token in range(3 + rank)])


def _tally(choices, experts):
    """Return the number of tokens of each rank for each expert."""
    return torch.stack([torch.bincount(torch.tensor(of, dtype=torch.int64), minlength=experts) for of in choices])


def _places(choices, source, expert):
    """Return the places of the tokens of a rank that go to an expert."""
    return (torch.tensor(choices[source], dtype=torch.int64) == expert).nonzero().flatten()


def _numbered(rank, rows):
    """Return rows of two elements that differ on all ranks."""
    return 100.0 * (rank + 1) + torch.arange(1, rows * _WIDTH + 1, dtype=torch.float64).reshape(rows, _WIDTH)


def _block(counts, source, destination):
    """Return the rows that a rank sends to another rank."""
    begin = int(counts[source, :destination].sum())
    return _numbered(source, int(counts[source].sum()))[begin : begin + int(counts[source, destination])]


def _require_plan(exam, case, plan, tokens, chosen, counts):
    rank = exam.rank
    parts = list(plan) if isinstance(plan, list | tuple) else []
    if not exam.require(
        len(parts) == 3 and isinstance(parts[0], torch.Tensor) and parts[0].shape == chosen.shape,
        f"The rows are right. With {case}, rank {rank} returned the plan {plan}, expected (order, sent, received), "
        f"with an order of {len(chosen)} places.",
    ):
        return
    order, *splits = parts
    for name, split, expected in zip(("sent", "received"), splits, (counts[rank], counts[:, rank]), strict=True):
        exam.require(
            [number(count) for count in split] == expected.tolist() if isinstance(split, list | tuple) else False,
            f"The rows are right. With {case}, `{name}` of the plan is {split} on rank {rank}, expected the list "
            f"{expected.tolist()}.",
        )
    places = order.tolist()
    exam.require(
        sorted(places) == list(range(len(chosen))) and chosen[order.long()].tolist() == sorted(chosen.tolist()),
        f"The rows are right. With {case}, `order` of the plan is {places} on rank {rank}, expected the places of its "
        "tokens in the order in which it sent them.",
    )


def _require_gradient(exam, begin, gradient, expected):
    rank = exam.rank
    if isinstance(gradient, str):
        exam.require(
            gradient == _ONLY_HERE,
            f"{begin} no gradient reaches the input on rank {rank}, and the other ranks would wait for it in the "
            "backward pass. A rank that received no row also needs outputs with a graph.",
        )
    elif exam.require(
        has_shape(gradient, expected),
        f"{begin} no gradient reaches the input on rank {rank}.",
    ):
        exam.require(
            close(gradient, expected, 1e-9),
            f"{begin} on rank {rank} the gradient of the input is {rounded(gradient)}, expected "
            f"{rounded(expected)}, from the losses of the ranks that received the rows.",
        )


def _output_and_gradient(name, rows, *arguments_and_scale):
    """Return an answer's output, the gradient of its rows for the scaled sum of its squares, and what it called.

    The gradient is None if there is none. Before the calls comes whether the answer changed one of its arguments.
    """
    *arguments, scale = arguments_and_scale
    rows = rows.clone().requires_grad_()
    before = rows.detach().clone()
    with collectives() as calls:
        output = answer(name, [rows, *arguments])
    gradient, changed = _gradient(output, rows, scale)
    changed = changed or not torch.equal(rows.detach(), before)
    return _detached(output), gradient, changed, dict(calls)


def _dispatched(tokens, chosen, scale):
    """Return the rows and the plan of `my_dispatch`, the gradient of the tokens, and the collectives of the call."""
    tokens = tokens.clone().requires_grad_()
    n, counts = dist.get_world_size(), []

    def count(event):
        counts.append(sum(tensor.numel() for tensor in event.inputs))

    with collectives() as calls, tap.subscribed(tap.Collective, begin=count):
        try:
            result = answer("my_dispatch", [tokens, chosen.clone()])
        except AnswerError as error:
            if not counts or counts[0] >= n:
                raise
            reason = str(error).partition("\n")[0].rstrip(".")
            raise AnswerError(
                f"{reason}. The first collective got {counts[0]} counts, expected {n}, one for each expert. "
                f"If you count with `torch.bincount`, give it `minlength`. {RESTART}"
            ) from None
    if not isinstance(result, list | tuple) or len(result) != 2:
        return _detached(result), None, None, dict(calls)
    rows, plan = result
    return _detached(rows), plan, _gradient(rows, tokens, scale)[0], dict(calls)


def _through_two_experts(tokens, chosen, scale):
    """Return the output of `two_experts`, the gradient of the tokens, and the experts applied with their rows."""
    applied = []

    def apply(expert, rows):
        applied.append((int(expert), len(rows)))
        return (int(expert) + 1.0) * rows

    tokens = tokens.clone().requires_grad_()
    output = answer("two_experts", [tokens, chosen.clone(), apply])
    return _detached(output), _gradient(output, tokens, scale)[0], applied


def _gradient(output, x, scale):
    """Return the gradient of x for the scaled sum of the squares of an output, and whether backward changed it.

    Without a graph on any rank the gradient is None. If only some ranks have a graph, they would wait for the others in
    the backward pass, so no rank calls it, and the gradient is a text.
    """
    has_graph = isinstance(output, torch.Tensor) and output.requires_grad
    graphs = torch.tensor(float(has_graph))
    dist.all_reduce(graphs)
    if graphs < dist.get_world_size():
        return (_ONLY_HERE if has_graph else _ONLY_ELSEWHERE) if graphs else None, False
    of_output = 2 * scale * output.detach()
    before = of_output.clone()
    with errors_of_answer():
        (gradient,) = torch.autograd.grad(output, x, of_output, allow_unused=True)
    return gradient, not torch.equal(of_output, before)


def _detached(result):
    return result.detach().clone() if isinstance(result, torch.Tensor) else result


def _sorted(rows):
    """Return the rows in the order of their first elements."""
    return rows[rows[:, 0].argsort()]
