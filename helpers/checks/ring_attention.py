"""Exercises of 47_ring_attention: online softmax, two ring loops, causal pieces, chunks with equal work, and more."""

import gc
import time
from typing import NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention

from helpers.checks.exam import answer, called, close, exercise, number, show, times_in_words
from helpers.measure.traffic import recorded

_QUERIES, _KEYS, _BLOCKS, _WIDTH = 3, 4, 4, 2  # _KEYS in a block
_HEADS, _POSITIONS, _HEAD_WIDTH = 2, 6, 4  # _POSITIONS of each rank
_MOST_RANKS = 8  # for which chunks are asked
_BLOCK = 2, 1, 5, 7  # the shape of a block of the ring
_BLOCK_BYTES = 8 * 2 * 5 * 7
_DELAY = 0.03  # seconds


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
            query, shown, shown_expected = _first_wrong_query(result, expected)
            exam.require(
                close(result, expected),
                f"With {name}, rank {rank} has {shown} for {query} after {_BLOCKS} blocks, expected {shown_expected}, "
                "the attention over all keys.",
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
        "scores that differ by 1,000 from query to query": small + 1000 * torch.arange(_QUERIES).view(-1, 1),
        "scores of which some are -inf": hidden,
        "scores of two heads": torch.stack([small, rising], dim=1),
    }
    return scores, values


class Visit(NamedTuple):
    """One call of `compute`: the owner and the content of the block, and the state of the rank at that moment.

    `incoming` are the bytes of all receives that the rank has posted and not yet waited for. `blocks` is the number of
    blocks in the memory of the rank.
    """

    owner: object
    block: object
    incoming: int
    blocks: int


@exercise
def my_ring(exam):
    """Check `my_ring(block, compute)`: it calls `compute` with every block while the next block is on its way."""
    rank, n = exam.rank, exam.n
    visits, _, unchanged = exam.on_rank(_go_round, "my_ring", rank)
    _require_visits(exam, visits)
    exam.require(unchanged, f"Rank {rank} changed its argument `block`, expected it unchanged.")
    for step, visit in enumerate(visits[: n - 1]):
        exam.require(
            visit.incoming >= _BLOCK_BYTES,
            f"In step {step}, no block was on its way to rank {rank} during the call of `compute`, expected the next "
            "block. Start the hop before the call, and wait for it after the call.",
        )
    _require_hops(exam, n - 1, "In its last step, rank {rank} sent a block that no rank needs, expected no message.")
    most = max((visit.blocks for visit in visits), default=0)
    exam.require(
        most <= 3,
        f"Rank {rank} had {most} blocks in memory, expected its own block, the block in use, and the next block.",
    )
    return "Every rank computed with the blocks of all ranks, while the next block was on its way."


@exercise
def my_ring_back(exam):
    """Check `my_ring_back(block, compute)`: gradients travel one hop behind their blocks, and reach their owners."""
    rank, n = exam.rank, exam.n
    visits, gradient, unchanged = exam.on_rank(_go_round, "my_ring_back", rank)
    fault = _fault_of_gradient(gradient, rank, n)
    if fault and len(visits) == 1 and n > 1:
        exam.refuse(f"Rank {rank} called `compute` once, and returned {fault}.")
    _require_visits(exam, visits)
    exam.require(not fault, f"Rank {rank} returned {fault}.")
    exam.require(unchanged, f"Rank {rank} changed its argument `block`, expected it unchanged.")
    for step, visit in enumerate(visits[:n]):
        block = ["a block"] if step < n - 1 else []
        expected = [*block, *(["a gradient"] if step > 0 else [])]
        exam.require(
            visit.incoming >= len(expected) * _BLOCK_BYTES,
            f"In step {step}, rank {rank} received {visit.incoming} bytes during the call of `compute`, expected "
            f"{len(expected) * _BLOCK_BYTES}, {' and '.join(expected)}. Wait for a message when the rank needs it.",
        )
    _require_hops(
        exam, 2 * n - 1, "Rank {rank} sent a block or a gradient that no rank needs, expected no such message."
    )
    return "Every rank has the gradient of its own block, and the gradients travelled while the ranks computed."


def _go_round(name, rank):
    """Call the learner's loop with a block of this rank.

    Return its calls of `compute`, its result, and whether the block is unchanged.

    What `compute` returns is the block times 10 to the power of the rank, so the digits of a sum show its parts.
    """
    own, visits = _block_of(rank), []
    with recorded() as messages:

        def compute(block, owner):
            incoming = sum(message.bytes for message in messages if not message.sent and message.ended is None)
            content = block.clone() if isinstance(block, torch.Tensor) else block
            copies = [content, *(visit.block for visit in visits)]
            visits.append(Visit(owner, content, incoming, _blocks_in_memory(copies)))
            if rank % 2 == 0:
                time.sleep(_DELAY)  # so that its neighbours see whether they have waited for its messages
            return content * 10.0**rank

        result = answer(name, (own, compute))
        return visits, result, torch.equal(own, _block_of(rank))


def _block_of(rank):
    generator = torch.Generator().manual_seed(100 + rank)
    return torch.rand(_BLOCK, dtype=torch.float64, generator=generator) + 0.5


def _blocks_in_memory(copies):
    """Return how many tensors of the size of a block are in memory, except the copies that this check has made."""
    places = {
        value.untyped_storage().data_ptr()
        for value in gc.get_objects()
        if type(value) is torch.Tensor and value.untyped_storage().nbytes() == _BLOCK_BYTES
    }
    return len(places - {copy.data_ptr() for copy in copies if isinstance(copy, torch.Tensor)})


def _require_visits(exam, visits):
    """Require messages to the right only, and one call of `compute` for each block, in the order of the ring."""
    rank, n = exam.rank, exam.n
    exam.require(
        not set(exam.collectives) - {"barrier"},
        f"Rank {rank} called {called(exam.collectives)}, expected only messages to the right neighbour.",
    )
    exam.require(
        len(visits) == n,
        f"Rank {rank} called `compute` {times_in_words(len(visits))}, expected {n} times, once for each block.",
    )
    for step, visit in enumerate(visits[:n]):
        owner = (rank - step) % n
        exam.require(
            number(visit.owner) == owner,
            f"In step {step}, rank {rank} called `compute` with the owner {show(visit.owner)}, expected {owner}.",
        )
        exam.require(
            _same(visit.block, _block_of(owner)),
            f"In step {step}, rank {rank} called `compute` with {_name_of(visit.block, n)}, expected the block of "
            f"rank {owner}.",
        )
    for message in exam.messages:
        exam.require(
            not message.sent or message.peer == (rank + 1) % n,
            f"Rank {rank} sent a message to rank {message.peer}, expected messages only to its right neighbour.",
        )


def _require_hops(exam, hops, sentence):
    """Require that a rank sent no more than this number of blocks, and waited for all of its messages."""
    sent = sum(message.bytes for message in exam.messages if message.sent)
    exam.require(sent <= hops * _BLOCK_BYTES, sentence.format(rank=exam.rank))
    exam.require(
        all(message.ended is not None for message in exam.messages),
        f"Rank {exam.rank} did not wait for each of its messages, expected a wait for every `isend` and `irecv`.",
    )


def _fault_of_gradient(gradient, rank, n):
    """Return what is wrong with the gradient of the block of this rank, in words, or an empty text."""
    parts = list(gradient) if isinstance(gradient, list | tuple) else [gradient]
    if not all(isinstance(part, torch.Tensor) for part in parts):
        return f"{show(gradient)}, expected the gradient of its block"
    if len(parts) > 1 and all(part.shape == parts[0].shape for part in parts):
        gradient = torch.stack(parts)
    if not isinstance(gradient, torch.Tensor) or gradient.shape != torch.Size(_BLOCK):
        return f"{_shown([gradient])}, expected {_names_of([_BLOCK])}, the shape of a block"
    for owner in [rank, *range(n)]:
        ratios = gradient / _block_of(owner)
        ratio = ratios.flatten()[0].item()
        if ratios.isfinite().all() and torch.allclose(ratios, torch.full_like(ratios, ratio), rtol=1e-9):
            times = [round(ratio) // 10**of_rank % 10 for of_rank in range(n)]
            if owner != rank:
                return f"a gradient of the block of rank {owner}, expected the gradient of its own block"
            if times == [1] * n:
                return ""
            parts = [
                f"rank {of_rank}" + f" ({count} times)" * (count > 1) for of_rank, count in enumerate(times) if count
            ]
            return f"the contributions of {', '.join(parts) or 'no rank'}, expected one contribution of each rank"
    return "a tensor that is no sum of contributions to the gradient of one block"


def _same(block, expected):
    return isinstance(block, torch.Tensor) and block.shape == expected.shape and torch.equal(block, expected)


def _name_of(block, n):
    """Return in words what a call of `compute` got as its block."""
    for owner in range(n):
        if _same(block, _block_of(owner)):
            return f"the block of rank {owner}"
    if isinstance(block, torch.Tensor) and block.shape == torch.Size(_BLOCK):
        return "a tensor that is no rank's block, such as a message that has not arrived"
    return _shown([block])


@exercise
def my_pieces(exam):
    """Check `my_pieces(query_chunks, key_chunks)`: the pieces that are not hidden, and which of them are diagonal.

    The check asks for blocks of chunks in order, and for blocks with one chunk from each end of the sequence.
    """
    rank = exam.rank
    for query_chunks, key_chunks in _CHUNKS:
        result = exam.call(query_chunks, key_chunks)
        where = f"With the chunks {query_chunks} of queries and {key_chunks} of keys, rank {rank} returned"
        pieces = _triples(result)
        if not exam.require(pieces is not None, f"{where} {show(result)}, expected a list of pieces (i, j, diagonal)."):
            continue
        places = [(i, j) for i, j, _ in pieces]
        for place in places:
            exam.require(places.count(place) == 1, f"{where} the piece {place} twice, expected it once.")
        for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)):
            query_chunk, key_chunk = query_chunks[i], key_chunks[j]
            which = f"{(i, j)}, chunk {query_chunk} of queries with chunk {key_chunk} of keys"
            if key_chunk > query_chunk:
                exam.require((i, j) not in places, f"{where} the piece {which}, expected no piece of hidden keys.")
            elif exam.require((i, j) in places, f"{where} no piece {which}, expected this piece."):
                diagonal = pieces[places.index((i, j))][2]
                expected = query_chunk == key_chunk
                exam.require(
                    diagonal == expected, f"{where} diagonal={diagonal} for the piece {which}, expected {expected}."
                )
        exam.require(
            set(places) <= {(0, 0), (0, 1), (1, 0), (1, 1)},
            f"{where} the pieces {places}, expected i and j to be 0 or 1, the indices of the chunks on their ranks.",
        )
    return "The pieces hold every visible key, and no chunk of hidden keys."


_CHUNKS = (
    [((2, 3), key_chunks) for key_chunks in ((2, 3), (0, 1), (4, 5))]
    + [((1, 6), key_chunks) for key_chunks in ((1, 6), (0, 7), (2, 5))]
    + [((5, 2), key_chunks) for key_chunks in ((5, 2), (4, 3), (7, 0))]
)


def _triples(result):
    """Return a result as a list of triples (i, j, diagonal), or None if it is something else."""
    if not isinstance(result, list | tuple | set):
        return None
    triples = [tuple(piece) if isinstance(piece, list | tuple) else () for piece in result]
    if not all(len(triple) == 3 and None not in map(number, triple[:2]) for triple in triples):
        return None
    return [(number(i), number(j), diagonal) for i, j, diagonal in triples]


@exercise
def my_chunks(exam):
    """Check `my_chunks(rank, n)`: each of 2n chunks belongs to one rank, and all ranks meet equally many chunks.

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
            f"With {n} ranks, `my_chunks` on rank {rank} assigned the ranks the chunks {chunks}, expected each of 0 "
            f"to {2 * n - 1} once.",
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
                _, shown, shown_expected = _first_wrong_query(result, expected)
                exam.require(
                    close(result, expected),
                    f"With {name}, rank {rank} returned the {part} {shown} ..., expected {shown_expected} ..., the "
                    "result for all keys.",
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
                close(result[:, position], expected[:, position]),
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


def _first_wrong_query(result, expected):
    """Return the name of the first query with a wrong result, its result, and the expected result, both rounded."""
    rows, expected_rows = result.reshape(-1, result.shape[-1]), expected.reshape(-1, expected.shape[-1])
    wrong = [query for query in range(len(rows)) if not close(rows[query], expected_rows[query])]
    query = wrong[0] if wrong else 0
    name = f"query {query}" if query else "the first query"
    return name, _rounded(rows[query]), _rounded(expected_rows[query])


def _rounded(tensor):
    """Return the numbers of a tensor, rounded."""
    return [round(number, 4) if abs(number) < 1e300 else number for number in tensor.tolist()]
