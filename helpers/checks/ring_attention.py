"""Checks of 34_ring_attention: softmax from blocks, chunks with equal work, two results merged, and a window."""

import os

from helpers.checks.collectives import called, show
from helpers.checks.judging import Verdict, Wrong, call_answer, judge

_QUERIES, _KEYS, _BLOCKS, _WIDTH = 3, 4, 4, 2  # _KEYS in a block
_HEADS, _POSITIONS, _HEAD_WIDTH = 2, 6, 4  # _POSITIONS of each rank


def my_update(world) -> Verdict:
    """Check `my_update(state, scores, values)`: after all blocks, output over total is attention over all keys."""

    def check(runs):
        for rank, run in enumerate(runs):
            for name, found, truth in run.result:
                if isinstance(found, str):
                    raise Wrong(f"Rank {rank} returned {found}; the target is (largest, total, output), as in `state`.")
                if any(number != number for number in found):
                    raise Wrong(f"With {name} rank {rank} gets nan for a query: exp overflows, or all weights are 0.")
                if not _close(found, truth):
                    raise Wrong(
                        f"With {name} rank {rank} gets {_rounded(found[:_WIDTH])} for the first query after "
                        f"{_BLOCKS} blocks, and attention over all keys is {_rounded(truth[:_WIDTH])}."
                    )
        return "Whatever the order and the size of the scores, the blocks make the attention over all keys."

    return judge(world, "my_update", check, _run_updates)


def my_chunks(world) -> Verdict:
    """Check `my_chunks(rank, n)`: each of 2n chunks has one rank, and all ranks meet as many chunks before theirs."""

    def check(runs):
        for rank, run in enumerate(runs):
            for size, chunks in run.result.items():
                for of_rank, pair in enumerate(chunks):
                    if isinstance(pair, str) or len(pair) != 2:
                        raise Wrong(f"For rank {of_rank} of {size} rank {rank} returned {pair}, and not two chunks.")
                dealt = sorted(chunk for pair in chunks for chunk in pair)
                if dealt != list(range(2 * size)):
                    raise Wrong(
                        f"With {size} ranks the chunks {dealt} are dealt out on rank {rank}. "
                        f"Each of 0 to {2 * size - 1} is to be there once."
                    )
                work = [sum(chunk + 1 for chunk in pair) for pair in chunks]
                for of_rank, met in enumerate(work):
                    if met != 2 * size + 1:
                        raise Wrong(
                            f"With {size} ranks the chunks of rank {of_rank}, {chunks[of_rank]}, meet {met} chunks, "
                            f"and each rank's are to meet {2 * size + 1}."
                        )
        return "The chunks of every rank meet 2n + 1 chunks."

    return judge(world, "my_chunks", check, _run_chunks)


def merged(world) -> Verdict:
    """Check `merged(first, second)`: output and logarithm of two sets of keys make those of both together."""

    def check(runs):
        for rank, run in enumerate(runs):
            for name, found, truth in run.result:
                if isinstance(found, str):
                    raise Wrong(f"Rank {rank} returned {found}; the target is a pair, output and logarithm.")
                for part, mine, true in zip(("output", "logarithm"), found, truth, strict=True):
                    if not _close(mine, true):
                        raise Wrong(
                            f"With {name} rank {rank} returned the {part} {_rounded(mine[:_WIDTH])} ... , and that of "
                            f"all keys is {_rounded(true[:_WIDTH])} ..."
                        )
        return "Two results make one, however large the logarithms are, and also when one set has nothing to see."

    return judge(world, "merged", check, _run_merged)


def windowed(world) -> Verdict:
    """Check `windowed(q, k, v)`: attention to the last c positions, for which a rank sends at most one block."""
    most = 2 * 8 * _HEADS * _POSITIONS * _HEAD_WIDTH

    def check(runs):
        for rank, run in enumerate(runs):
            found, truth = run.result
            if isinstance(found, str):
                raise Wrong(f"Rank {rank} returned {found}, and the target is a tensor of the shape of q.")
            for position in range(_POSITIONS):
                if not _close(found[position], truth[position]):
                    raise Wrong(
                        f"Rank {rank} is wrong for its position {position}, number {rank * _POSITIONS + position} of "
                        f"the sequence: it sees itself and up to {_POSITIONS - 1} positions before it."
                    )
        for rank, run in enumerate(runs):
            if set(run.collectives) - {"barrier"}:
                raise Wrong(
                    f"The output is right. Rank {rank} called {called(run.collectives)}; one neighbour's are enough."
                )
            sent = sum(message.bytes for message in run.messages if message.sent)
            if sent > most:
                raise Wrong(f"The output is right. Rank {rank} sent {sent} bytes, and the target is at most {most}.")
        return f"Each position has its window, and no rank sent more than {most} bytes."

    return judge(world, "windowed", check, _run_windowed)


def _close(found, truth):
    if len(found) != len(truth):
        return False
    return all(one == other or abs(one - other) <= 1e-10 for one, other in zip(found, truth, strict=True))


def _rounded(numbers):
    return [round(number, 4) if abs(number) < 1e300 else number for number in numbers]


def _run_updates():
    import torch

    torch.manual_seed(7)
    plain = torch.randn(_BLOCKS, _QUERIES, _KEYS, dtype=torch.float64)
    values = torch.randn(_BLOCKS, _KEYS, _WIDTH, dtype=torch.float64)
    hidden = plain.clone()
    hidden[1:, 0] = -torch.inf
    hidden[:, 1, ::2] = -torch.inf
    rising = plain + 3 * torch.arange(_BLOCKS, dtype=torch.float64).view(-1, 1, 1)
    cases = {
        "small scores": plain,
        "scores that rise from block to block": rising,
        "scores that fall from block to block": rising.flip(0),
        "scores of about 1,000": plain + 1000,
        "scores of about -1,000": plain - 1000,
        "scores of which some are -inf": hidden,
        "scores of two heads": torch.stack([plain, rising], dim=1),
    }
    results = []
    for name, scores in cases.items():
        shape = scores.shape[1:-1]
        column = torch.zeros(*shape, 1, dtype=torch.float64)
        state = column - torch.inf, column, torch.zeros(*shape, _WIDTH, dtype=torch.float64)
        for block in range(_BLOCKS):
            of_block = values[block].expand(*shape[:-1], -1, -1)
            run = call_answer("my_update", [state, scores[block].clone(), of_block.clone()])
            if run.error:
                return run
            state = run.result
            if wrong := _not_tensors(state, [(*shape, 1), (*shape, 1), (*shape, _WIDTH)]):
                return run._replace(result=[(name, wrong, [])])
        weights = torch.cat(list(scores), dim=-1).softmax(-1)
        truth = weights @ values.flatten(0, 1)
        results.append((name, (state[2] / state[1]).flatten().tolist(), truth.flatten().tolist()))
    return run._replace(result=results)


def _run_chunks():
    results = {}
    for size in range(2, 9):
        results[size] = []
        for rank in range(size):
            run = call_answer("my_chunks", [rank, size])
            if run.error:
                return run
            try:
                results[size].append([int(chunk) for chunk in run.result])
            except TypeError:
                results[size].append(show(run.result))
    return run._replace(result=results)


def _run_merged():
    import torch

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
        "logarithms of about 1,000": uneven + 1000,
        "logarithms of about -1,000": uneven - 1000,
        "queries that see no key of a set": hidden,
    }
    results = []
    for name, case in cases.items():
        sets = zip(case.chunk(2, 1), values.chunk(2), strict=True)
        pairs = [_attention(part, of_part) for part, of_part in sets]
        run = call_answer("merged", pairs)
        if run.error:
            return run
        found = _not_tensors(run.result, [(_QUERIES, _WIDTH), (_QUERIES, 1)])
        found = found or [part.flatten().tolist() for part in run.result]
        results.append((name, found, [part.flatten().tolist() for part in _attention(case, values)]))
    return run._replace(result=results)


def _attention(scores, values):
    """Return output and logarithm; a query that sees no key has zeros and -inf."""
    import torch

    logarithm = scores.logsumexp(-1, keepdim=True)
    weights = torch.where(logarithm == -torch.inf, 0.0, (scores - logarithm).exp())
    return weights @ values, logarithm


def _run_windowed():
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(7)
    whole = torch.randn(3, _HEADS, size * _POSITIONS, _HEAD_WIDTH, dtype=torch.float64)
    place = torch.arange(size * _POSITIONS)
    behind = place.unsqueeze(1) - place
    truth = scaled_dot_product_attention(*whole, attn_mask=(behind >= 0) & (behind < _POSITIONS))
    own = slice(rank * _POSITIONS, (rank + 1) * _POSITIONS)
    run = call_answer("windowed", [part[:, own].clone() for part in whole])
    if run.error:
        return run
    shape = (_HEADS, _POSITIONS, _HEAD_WIDTH)
    found = _not_tensors([run.result], [shape]) or _by_position(run.result)
    return run._replace(result=(found, _by_position(truth[:, own])))


def _by_position(output):
    return [output[:, position].detach().flatten().tolist() for position in range(_POSITIONS)]


def _not_tensors(result, shapes):
    """Return in words what is there instead of tensors of these shapes; nothing if they are there."""
    import torch

    parts = result if isinstance(result, list | tuple) else [result]
    found = [f"shape {tuple(part.shape)}" if isinstance(part, torch.Tensor) else show(part) for part in parts]
    if found == [f"shape {shape}" for shape in shapes]:
        return ""
    return f"{', '.join(found)} in place of tensors of {', '.join(f'shape {shape}' for shape in shapes)}"
