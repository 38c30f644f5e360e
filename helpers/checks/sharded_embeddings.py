"""Exercises of 31_sharded_embeddings: ids to owners, rows back and to owners, sums at the owners, and an optimizer."""

import torch

from helpers.checks.exam import answer, called, close, exercise, number, show
from helpers.measure.traffic import collectives, handed_over

_COLUMNS = 3
_RATE = 0.3


@exercise
def my_request(exam):
    """Check `my_request(ids, owners)`: each owner gets the ids that all ranks ask of it, with the right plan."""
    rank, n = exam.rank, exam.n
    for case, owners_of in _cases(n).items():
        ids, owners = _ids(rank, owners_of), torch.tensor(owners_of[rank], dtype=torch.int64)
        before = ids.clone()
        result = exam.call(ids, owners)
        calls = exam.collectives
        if not exam.require(
            isinstance(result, list | tuple) and len(result) == 2,
            f"With {case}, rank {rank} returned {show(result)}, expected the ids that it was asked for and the plan.",
        ):
            continue
        asked, plan = result
        expected = _asked(rank, owners_of)
        exam.require(
            _same(asked, expected),
            f"With {case}, the asked ids on rank {rank} are {_listed(asked)}, expected {expected.tolist()}, first "
            "those of rank 0.",
        )
        _require_plan(exam, case, plan, _plan(rank, owners_of))
        exam.require(torch.equal(ids, before), f"Rank {rank} changed its argument `ids`, expected it unchanged.")
        exam.require(
            sum(calls.values()) <= 2 and "all_to_all" in calls,
            f"Ids and plan are right. Rank {rank} called {called(calls)}, expected at most two collectives, and an "
            "all_to_all for the ids.",
        )
    return "Every owner has the ids that all ranks request from it, and every rank has the plan."


@exercise
def my_answer(exam):
    """Check `my_answer(asked_rows, plan)`: each rank gets a row for each of its ids, in the order of the ids."""
    for case, owners_of in _cases(exam.n).items():
        ids, asked = _ids(exam.rank, owners_of), _asked(exam.rank, owners_of)
        for rows, expected in ((_vectors(asked), _vectors(ids)), (asked % 2 == 0, ids % 2 == 0)):
            _require_rows(exam, case, rows, owners_of, expected, "the order of its ids")
    return "Every rank has a row for each of its ids, in the order of the ids."


@exercise
def my_to_owners(exam):
    """Check `my_to_owners(own_rows, plan)`: each owner gets a row for each id that it was asked for."""
    for case, owners_of in _cases(exam.n).items():
        ids, asked = _ids(exam.rank, owners_of), _asked(exam.rank, owners_of)
        for rows, expected in ((_vectors(ids), _vectors(asked)), (ids, asked)):
            _require_rows(exam, case, rows, owners_of, expected, "the order of the ids that it was asked for")
    return "Every owner has a row for each id that it was asked for."


@exercise
def pooled(exam):
    """Check `pooled(shard, ids, bag_of_id, bags)`: sums for each passage, of which owners send one for each rank."""
    rank, n = exam.rank, exam.n
    table = _vectors(torch.arange(3 * n + 2) + 1)
    for bags, (case, ids_of) in enumerate(_ids_of_passages(n).items(), start=3):
        ids = torch.tensor(ids_of[rank], dtype=torch.int64)
        bag_of_id = torch.arange(len(ids)) * (bags - 1) // max(1, len(ids))  # the last passage has no id
        result, calls, sizes = exam.on_rank(_pooled, table[rank::n].clone(), ids, bag_of_id, bags)
        expected = torch.zeros(bags, _COLUMNS, dtype=torch.float64).index_add(0, bag_of_id, table[ids])
        if not exam.require(
            isinstance(result, torch.Tensor) and result.shape == expected.shape,
            f"With {case}, rank {rank} returned {show(result)}, expected a tensor of shape {list(expected.shape)}.",
        ):
            continue
        exam.require(
            close(result, expected, 1e-9),
            f"With {case}, rank {rank} returned {_listed(result)}, expected {_listed(expected)}.",
        )
        limit = 8 * (n + 2 * len(ids) + n * bags * _COLUMNS)
        exam.require(
            sum(sizes) <= limit,
            f"The sums are right. With {case}, rank {rank} passed {sum(sizes)} bytes, expected at most {limit}: the "
            "counts, two numbers for each id, and a sum for each passage of each rank.",
        )
    exam.require(
        calls.get("reduce_scatter") == 1,
        f"The sums are right. Rank {rank} called {called(calls)}, expected 1 reduce_scatter.",
    )
    return "Every rank has the sums of its passages, and no vector of a single id has travelled."


@exercise
def rowwise_adagrad(exam):
    """Check `rowwise_adagrad(shard, sums, places, gradients, rate)`: a step with the summed gradient of each row."""
    rank = exam.rank
    for case, places in _PLACES.items():
        shard, sums = _vectors(torch.arange(5) + rank + 1), torch.arange(5, dtype=torch.float64) / 4
        places = torch.tensor(places, dtype=torch.int64)
        gradients = _vectors(torch.arange(len(places)) + rank + 1)
        gradients_before = gradients.clone()
        expected_shard, expected_sums = shard.clone(), sums.clone()
        for place in places.unique():
            gradient = gradients[places == place].sum(dim=0)
            expected_sums[place] += gradient.square().mean()
            expected_shard[place] -= _RATE * gradient / (expected_sums[place].sqrt() + 1e-10)
        exam.call(shard, sums, places, gradients, _RATE)
        exam.require(
            close(sums, expected_sums, 1e-9),
            f"With {case}, `sums` is {_listed(sums)} on rank {rank}, expected {_listed(expected_sums)}.",
        )
        exam.require(
            close(shard, expected_shard, 1e-9),
            f"`sums` is right. With {case}, the first column of `shard` is {_listed(shard[:, 0])} on rank {rank}, "
            f"expected {_listed(expected_shard[:, 0])}.",
        )
        untouched = ~torch.isin(torch.arange(5), places)
        exam.require(
            torch.equal(shard[untouched], expected_shard[untouched]),
            f"With {case}, rank {rank} changed a row without gradients, expected it unchanged.",
        )
        exam.require(
            torch.equal(gradients, gradients_before), f"Rank {rank} changed `gradients`, expected them unchanged."
        )
        exam.require(not exam.collectives, f"Rank {rank} called {called(exam.collectives)}, expected no collective.")
    return "Every row with gradients took one step, and all other rows are unchanged."


_PLACES = {
    "different places": [3, 0, 1],
    "a place three times": [2, 4, 2, 0, 2],
    "no gradients": [],
}


def _cases(n):
    """Return, by the name of the case, the owners of the ids of each rank."""
    mixed = [[(place * place + rank) % n for place in range(5 + rank)] for rank in range(n)]
    return {
        "mixed owners": mixed,
        "all ids on the last rank": [[n - 1] * (2 + rank) for rank in range(n)],
        "no ids for rank 0": [[], *mixed[1:]],
        "an id of each owner": [list(reversed(range(n))) for _ in range(n)],
    }


def _ids_of_passages(n):
    """Return, by the name of the case, the ids of the passages of each rank; some occur several times."""
    rows = 3 * n + 2
    short = [[(place * place + 2 * rank) % rows for place in range(4 + rank)] for rank in range(n)]
    return {
        "short passages": short,
        "no ids on rank 0": [[], *short[1:]],
        "long passages": [[(5 * place + rank) % rows for place in range(40 * n)] for rank in range(n)],
    }


def _ids(rank, owners_of):
    """Return the ids that a rank needs: all different, and different from those of other ranks."""
    return 100 * (rank + 1) + 1 + torch.arange(len(owners_of[rank]))


def _asked(rank, owners_of):
    """Return the ids that a rank is asked for."""
    of_source = [_ids(source, owners_of)[_places(owners, rank)] for source, owners in enumerate(owners_of)]
    return torch.cat(of_source)


def _places(owners, owner):
    return (torch.tensor(owners, dtype=torch.int64) == owner).nonzero().flatten()


def _plan(rank, owners_of):
    n = len(owners_of)
    order = torch.cat([_places(owners_of[rank], owner) for owner in range(n)])
    sent = [owners_of[rank].count(owner) for owner in range(n)]
    received = [owners.count(rank) for owners in owners_of]
    return order, sent, received


def _vectors(ids):
    """Return a vector for each id; all vectors differ."""
    return ids.double().unsqueeze(1) * torch.tensor([1.0, 0.5, -1.0], dtype=torch.float64)


def _require_plan(exam, case, plan, expected):
    rank = exam.rank
    parts = list(plan) if isinstance(plan, list | tuple) else []
    if not exam.require(
        len(parts) == 3 and isinstance(parts[0], torch.Tensor),
        f"The ids are right. With {case}, the plan of rank {rank} is {plan}, expected (order, sent, received).",
    ):
        return
    for name, split, right in zip(("sent", "received"), parts[1:], expected[1:], strict=True):
        exam.require(
            isinstance(split, list | tuple) and [number(count) for count in split] == right,
            f"The ids are right. With {case}, `{name}` of the plan is {split} on rank {rank}, expected the list "
            f"{right}.",
        )
    exam.require(
        _same(parts[0], expected[0]),
        f"The ids are right. With {case}, `order` of the plan is {_listed(parts[0])} on rank {rank}, expected "
        f"{expected[0].tolist()}: the places of its ids, sorted by owner.",
    )


def _require_rows(exam, case, rows, owners_of, expected, order):
    rank = exam.rank
    before = rows.clone()
    result = exam.call(rows, _plan(rank, owners_of))
    if not exam.require(
        isinstance(result, torch.Tensor) and result.shape == expected.shape,
        f"With {case}, rank {rank} returned {show(result)}, expected a tensor of shape {list(expected.shape)}.",
    ):
        return
    exam.require(
        result.dtype == expected.dtype,
        f"With {case}, rank {rank} returned {result.dtype}, expected {expected.dtype}, the dtype of the argument.",
    )
    exam.require(
        close(result, expected, 1e-9),
        f"With {case}, rank {rank} returned rows that begin with {_firsts(result)}, expected {_firsts(expected)}, in "
        f"{order}.",
    )
    exam.require(torch.equal(rows, before), f"Rank {rank} changed the rows that it got, expected them unchanged.")
    exam.require(
        exam.collectives == {"all_to_all": 1},
        f"The rows are right. Rank {rank} called {called(exam.collectives)}, expected 1 all_to_all.",
    )


def _pooled(shard, ids, bag_of_id, bags):
    """Return the result of `pooled`, its collectives, and the bytes that it handed over."""
    with collectives() as calls, handed_over() as sizes:
        result = answer("pooled", [shard, ids, bag_of_id, bags])
    return result.detach().clone() if isinstance(result, torch.Tensor) else result, dict(calls), list(sizes)


def _same(found, expected):
    return isinstance(found, torch.Tensor) and found.shape == expected.shape and bool((found == expected).all())


def _firsts(rows):
    return _listed(rows if rows.dim() == 1 else rows[:, 0])


def _listed(tensor):
    if not isinstance(tensor, torch.Tensor):
        return show(tensor)
    return [round(element, 4) if isinstance(element, float) else element for element in tensor.flatten().tolist()]
