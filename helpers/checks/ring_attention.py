"""Exercises of 39_ring_attention: online softmax, chunks with equal work, merged results, and a sliding window."""

import torch
from torch.nn.functional import scaled_dot_product_attention

from helpers.checks.exam import called, exercise, number, show

_QUERIES, _KEYS, _BLOCKS, _WIDTH = 3, 4, 4, 2  # _KEYS in a block
_HEADS, _POSITIONS, _HEAD_WIDTH = 2, 6, 4  # _POSITIONS of each rank
_MOST_RANKS = 8  # for which chunks are asked


@exercise
def my_update(exam):
    """Check `my_update(state, scores, values)`: after all blocks, output / total is the attention over all keys.

    The check calls it for one block after another, with scores of several sizes and orders, some of them -inf.
    """
    rank = exam.rank
    scores_of, values = _scores_and_values()
    for name, scores in scores_of.items():
        shape = scores.shape[1:-1]
        shapes = [(*shape, 1), (*shape, 1), (*shape, _WIDTH)]
        column = torch.zeros(shapes[0], dtype=torch.float64)
        state = column - torch.inf, column, torch.zeros(shapes[2], dtype=torch.float64)
        for block in range(_BLOCKS):
            of_block = values[block].expand(*shape[:-1], -1, -1)
            state = exam.call(state, scores[block].clone(), of_block.clone())
            if not _has_shapes(state, shapes):
                break
        if exam.require(
            _has_shapes(state, shapes),
            f"Rank {rank} returned {_shown(state)}, expected (largest, total, output), as in `state`: tensors of "
            f"{_names_of(shapes)}.",
        ):
            result = state[2] / state[1]
            expected = torch.cat(list(scores), dim=-1).softmax(-1) @ values.flatten(0, 1)
            exam.require(
                not result.isnan().any(),
                f"With {name}, rank {rank} returned nan for a query, expected numbers: exp overflows, or all "
                "weights are 0.",
            )
            exam.require(
                _close(result, expected),
                f"With {name}, rank {rank} has {_first(result)} for the first query after {_BLOCKS} blocks, expected "
                f"{_first(expected)}, the attention over all keys.",
            )
    return "In every order, with small and large scores, the blocks give the attention over all keys."


def _scores_and_values():
    """Return scores by the name of the case, (blocks, ..., queries, keys), and values, (blocks, keys, width)."""
    torch.manual_seed(7)
    small = torch.randn(_BLOCKS, _QUERIES, _KEYS, dtype=torch.float64)
    values = torch.randn(_BLOCKS, _KEYS, _WIDTH, dtype=torch.float64)
    hidden = small.clone()
    hidden[1:, 0] = -torch.inf
    hidden[:, 1, ::2] = -torch.inf
    rising = small + 3 * torch.arange(_BLOCKS, dtype=torch.float64).view(-1, 1, 1)
    scores = {
        "small scores": small,
        "scores that rise from block to block": rising,
        "scores that fall from block to block": rising.flip(0),
        "scores of about 1,000": small + 1000,
        "scores of about -1,000": small - 1000,
        "scores of which some are -inf": hidden,
        "scores of two heads": torch.stack([small, rising], dim=1),
    }
    return scores, values


@exercise
def my_chunks(exam):
    """Check `my_chunks(rank, n)`: each of 2n chunks belongs to one rank, and every rank meets as many chunks.

    The check asks every rank for the chunks of all ranks, for 2 to 8 ranks.
    """
    rank = exam.rank
    for n in range(2, _MOST_RANKS + 1):
        results = [exam.call(of_rank, n) for of_rank in range(n)]
        pairs = [_numbers(result) for result in results]
        for of_rank, (result, pair) in enumerate(zip(results, pairs, strict=True)):
            exam.require(
                len(pair) == 2,
                f"For rank {of_rank} of {n}, rank {rank} returned {pair or show(result)}, expected two chunks.",
            )
        chunks = sorted(chunk for pair in pairs for chunk in pair)
        exam.require(
            chunks == list(range(2 * n)),
            f"With {n} ranks, `my_chunks` on rank {rank} gave the ranks the chunks {chunks}, expected each of 0 to "
            f"{2 * n - 1} once.",
        )
        for of_rank, pair in enumerate(pairs):
            met = sum(chunk + 1 for chunk in pair)
            exam.require(
                met == 2 * n + 1,
                f"With {n} ranks, the chunks of rank {of_rank}, {pair}, meet {met} chunks, expected {2 * n + 1}, as "
                "for every rank.",
            )
    return "The chunks of every rank meet 2n + 1 chunks."


def _numbers(result):
    """Return the numbers in a result as a list, an empty one if it is something else."""
    values = result.tolist() if hasattr(result, "tolist") else result
    numbers = [number(value) for value in values] if isinstance(values, list | tuple | set) else []
    return [] if None in numbers else numbers


@exercise
def merged(exam):
    """Check `merged(first, second)`: it merges the results of two sets of keys into the result of both together.

    The check calls it with log-sum-exps of several sizes, and with queries that see no key of a set.
    """
    rank = exam.rank
    scores_of, values = _scores_of_two_sets()
    shapes = [(_QUERIES, _WIDTH), (_QUERIES, 1)]
    for name, scores in scores_of.items():
        sets = zip(scores.chunk(2, 1), values.chunk(2), strict=True)
        pair = exam.call(*[_attention(of_set, values_of_set) for of_set, values_of_set in sets])
        if exam.require(
            _has_shapes(pair, shapes),
            f"Rank {rank} returned {_shown(pair)}, expected (output, logsumexp): tensors of {_names_of(shapes)}.",
        ):
            for part, result, expected in zip(("output", "logsumexp"), pair, _attention(scores, values), strict=True):
                exam.require(
                    _close(result, expected),
                    f"With {name}, rank {rank} returned the {part} {_first(result)} ..., expected {_first(expected)} "
                    "..., the result for all keys.",
                )
    return "The results are merged correctly, even with large log-sum-exps and for queries that see no key of a set."


def _scores_of_two_sets():
    """Return scores by the name of the case, (queries, keys of both sets), and values, (keys of both sets, width)."""
    torch.manual_seed(7)
    scores = torch.randn(_QUERIES, 2 * _KEYS, dtype=torch.float64)
    values = torch.randn(2 * _KEYS, _WIDTH, dtype=torch.float64)
    uneven = scores.clone()
    uneven[:, :_KEYS] += 5
    hidden = scores.clone()
    hidden[0, :_KEYS] = -torch.inf
    hidden[1, _KEYS:] = -torch.inf
    cases = {
        "small scores": scores,
        "larger scores in the first set": uneven,
        "log-sum-exps of about 1,000": uneven + 1000,
        "log-sum-exps of about -1,000": uneven - 1000,
        "queries that see no key of a set": hidden,
    }
    return cases, values


def _attention(scores, values):
    """Return output and log-sum-exp; for a query that sees no key these are zeros and -inf."""
    logsumexp = scores.logsumexp(-1, keepdim=True)
    weights = torch.where(logsumexp == -torch.inf, 0.0, (scores - logsumexp).exp())
    return weights @ values, logsumexp


@exercise
def windowed(exam):
    """Check `windowed(q, k, v)`: each position attends to the last c positions, and a rank sends at most one block.

    Each rank has c positions of the sequence.
    """
    rank, n = exam.rank, exam.n
    most = 2 * 8 * _HEADS * _POSITIONS * _HEAD_WIDTH
    torch.manual_seed(7)
    qkv = torch.randn(3, _HEADS, n * _POSITIONS, _HEAD_WIDTH, dtype=torch.float64)
    place = torch.arange(n * _POSITIONS)
    behind = place.unsqueeze(1) - place
    own = slice(rank * _POSITIONS, (rank + 1) * _POSITIONS)
    expected = scaled_dot_product_attention(*qkv, attn_mask=(behind >= 0) & (behind < _POSITIONS))[:, own]
    result = exam.call(*[part[:, own].clone() for part in qkv])
    if exam.require(
        _has_shapes([result], [expected.shape]),
        f"Rank {rank} returned {_shown([result])}, expected a tensor of {_names_of([expected.shape])}, the shape of q.",
    ):
        for position in range(_POSITIONS):
            exam.require(
                _close(result[:, position], expected[:, position]),
                f"The output of rank {rank} is wrong at its position {position}, which is {own.start + position} in "
                f"the sequence: expected attention to itself and up to {_POSITIONS - 1} positions before it.",
            )
    exam.require(
        not set(exam.collectives) - {"barrier"},
        f"The output is right, but rank {rank} called {called(exam.collectives)}, expected only messages from "
        "neighbours.",
    )
    sent = sum(message.bytes for message in exam.messages if message.sent)
    exam.require(sent <= most, f"The output is right, but rank {rank} sent {sent} bytes, expected at most {most}.")
    return f"Each position sees its window, and no rank sent more than {most} bytes."


def _has_shapes(result, shapes):
    """Return whether a result consists of tensors of these shapes."""
    if not isinstance(result, list | tuple) or not all(isinstance(part, torch.Tensor) for part in result):
        return False
    return [part.shape for part in result] == shapes


def _shown(result):
    """Return in words what a result consists of."""
    parts = result if isinstance(result, list | tuple) else [result]
    return ", ".join(f"shape {tuple(part.shape)}" if hasattr(part, "shape") else show(part) for part in parts)


def _names_of(shapes):
    return ", ".join(f"shape {tuple(shape)}" for shape in shapes)


def _close(result, expected):
    return torch.allclose(result.double(), expected, rtol=0, atol=1e-10)


def _first(tensor):
    """Return the first numbers of a tensor, rounded."""
    numbers = tensor.flatten()[:_WIDTH].tolist()
    return [round(number, 4) if abs(number) < 1e300 else number for number in numbers]
