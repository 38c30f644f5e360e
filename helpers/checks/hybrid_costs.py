"""Exercises of 30_hybrid_costs: a lookup in several tables, an optimizer for each part, a table on two owners.

Trainer 0 calls the answer.
"""

import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch.distributed.nn.api.remote_module import RemoteModule
from torch.nn.functional import cross_entropy, embedding_bag, linear

from helpers.checks.exam import answer, exercise, plain, show
from helpers.checks.hybrid_ddp_rpc import Weights, kept, weight_of_table, weights_of
from helpers.checks.learner import learners_module
from helpers.checks.rpc_judging import answer_with_rpc, one_line_errors, require_rpc

_COLUMNS = 16
# Words per bag in each batch. The batches tell the mistakes apart; one of them has an empty bag.
_BATCHES = ((3, 4, 5), (1, 1), (2, 0, 7, 1), (10,) * 20)
_ROWS = 40
_TABLES = 3
_TYPE_OF_RREF = "_rref_typeof_on_owner"  # torch's own call, before the first call on an RRef
_OWNERS = ("server", "master")
_OTHER_ROWS, _OTHER_OWNERS = 12, ("trainer1", "server")  # of a second table
_RATE = 0.07
_PARTS = (
    ("table", "table", "SparseAdam"),
    ("weight of the dense layer", "dense", "Adam"),
    ("bias of the dense layer", "bias", "Adam"),
)


@exercise
def my_lookup(exam):
    """Check `my_lookup(tables, rows, offsets)`: the vectors and the gradients of several tables, in one call."""
    exam.on_rank(require_rpc, "my_lookup")
    if exam.rank == 0:
        weights = exam.on_rank(_make_tables)
        for lengths in _BATCHES:
            words, offsets = _bags(lengths)
            rows = [(words + 7 * table) % _ROWS for table in range(_TABLES)]
            scales = torch.linspace(-1, 1, len(lengths) * _COLUMNS).view(-1, _COLUMNS) + 0.1
            vectors, made, gradients = exam.on_rank(_look_up, rows, offsets, scales)
            _require_vectors(exam, weights, rows, offsets, vectors)
            _require_one_call(exam, made, 4 * _TABLES * scales.numel())
            for table, (own_rows, gradient) in enumerate(zip(rows, gradients, strict=False)):
                one = weights[table].clone().requires_grad_()
                (embedding_bag(own_rows, one, offsets, mode="sum") * scales).sum().backward()
                exam.require(
                    gradient is not None,
                    f"The vectors are right, but no gradient reached table {table}, expected a gradient on the server.",
                )
                exam.require(
                    gradient is not None and gradient.allclose(one.grad, atol=1e-4),
                    f"The vectors are right, but the gradient of table {table} is not, expected the gradient of one "
                    "process.",
                )
            if exam.fault:
                break
    return f"The vectors and gradients of {_TABLES} tables are right, and the trainer called the server once."


def _require_vectors(exam, weights, rows, offsets, vectors):
    """Require the vectors of each table: a list of tensors, or one tensor."""
    if isinstance(vectors, torch.Tensor) and vectors.dim() == 3:
        vectors = list(vectors)
    if not isinstance(vectors, list | tuple) or len(vectors) != _TABLES:
        exam.refuse(f"`my_lookup` returned {show(vectors)}, expected a list of {_TABLES} tensors, one for each table.")
        return
    for table, (own, own_rows) in enumerate(zip(vectors, rows, strict=True)):
        expected = embedding_bag(own_rows, weights[table], offsets, mode="sum")
        if exam.require(
            getattr(own, "shape", None) == expected.shape,
            f"For table {table}, `my_lookup` returned {show(own)}, expected a tensor of shape {list(expected.shape)}.",
        ):
            exam.require(
                own.allclose(expected, atol=1e-4),
                f"For table {table}, `my_lookup` returned wrong vectors, expected the sums of the rows "
                f"`rows[{table}]` of this table, bag by bag.",
            )


def _require_one_call(exam, made, size):
    """Require a single call to the server, which returns the vectors and nothing else."""
    callees = [call.callee for call in made]
    exam.require(
        callees == ["server"],
        f"The vectors are right, but the trainer waited for {len(made)} answers from "
        f"{' and '.join(sorted(set(callees))) or 'nobody'}, expected 1 call to the server for all {_TABLES} tables.",
    )
    received = sum(call.received for call in made)
    exam.require(
        received <= size,
        f"The vectors are right, but the trainer received {received} bytes, expected at most {size}: the vectors only.",
    )


@exercise
def two_optimizers(exam):
    """Check `two_optimizers(model, lr)`: SparseAdam for the table and Adam for the dense layer, with one `step`."""
    exam.on_rank(require_rpc, "two_optimizers")
    if exam.rank == 0:
        before = exam.on_rank(_make_model)
        no_optimizer = exam.on_rank(_make_optimizer)
        if not exam.require(
            not no_optimizer, f"`two_optimizers` returned {no_optimizer}, expected an object with a method `step`."
        ):
            return ""
        one = Weights(*[values.clone().requires_grad_() for values in before])
        optimizers = torch.optim.SparseAdam([one.table], lr=_RATE), torch.optim.Adam([one.dense, one.bias], lr=_RATE)
        for lengths in _BATCHES:
            words, offsets = _bags(lengths)
            label = torch.arange(len(lengths)) % 6
            after = exam.on_rank(_step, words, offsets, label)
            vectors = embedding_bag(words, one.table, offsets, mode="sum", sparse=True)
            cross_entropy(linear(vectors, one.dense, one.bias), label).backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            for name, part, kind in _PARTS:
                old, new, expected = (getattr(weights, part) for weights in (before, after, one))
                exam.require(
                    not new.equal(old), f"In a step the {name} did not move, expected a step of {kind} at rate {_RATE}."
                )
                exam.require(
                    new.allclose(expected, atol=1e-4),
                    f"In a step the {name} moved differently, expected a step of {kind} at rate {_RATE}.",
                )
            if exam.fault:
                break
            before = after
    return f"After {len(_BATCHES)} steps both parts equal those that SparseAdam and Adam train in one process."


@exercise
def SplitTable(exam):
    """Check `SplitTable(rows, owners)`: a table split over two owners, with the sums and gradients of one table."""
    exam.on_rank(require_rpc, "SplitTable")
    rows_on = {}
    if exam.rank == 0:
        rows_on = exam.on_rank(_make_table, _ROWS, _OWNERS)
        _require_halves(exam, rows_on, _ROWS, _OWNERS)
        if not exam.fault:
            _compare_table(exam)
        if not exam.fault:
            others = exam.on_rank(_make_table, _OTHER_ROWS, _OTHER_OWNERS)
            _require_halves(exam, others, _OTHER_ROWS, _OTHER_OWNERS)
    places = " and ".join(f"{rows} rows on {owner}" for owner, rows in rows_on.items())
    return f"With {places}, sums and gradients equal those of one table of {_ROWS} rows."


def _require_halves(exam, rows_on, size, owners):
    """Require half of the rows on each owner; a row or two for padding are fine."""
    for owner, rows in rows_on.items():
        exam.require(
            size // 2 <= rows <= size // 2 + 2 if owner in owners else rows == 0,
            f"According to `remote_parameters`, {rows} of {size} rows are on {owner}, expected {size // 2} on each of "
            f"{' and '.join(owners)}.",
        )


def _compare_table(exam):
    """Require the sums and the steps of one table, batch by batch, up to the first batch with a fault."""
    weight = exam.on_rank(_vectors)
    if not _require_shape(exam, weight, _ROWS):
        return
    zeros = [row for row, vector in enumerate(weight) if not vector.any()]
    if not exam.require(
        len(zeros) < 2,
        f"`forward` returns zeros for {len(zeros)} rows, expected a vector for every row. Does `forward` add up the "
        "vectors of both owners?",
    ):
        return
    exam.require(
        len(weight.unique(dim=0)) == _ROWS,
        "`forward` returns the same vector for two rows, expected different vectors. Do both owners use the same "
        "seed, do both owners look up the same word, or do the offsets not match the words of each owner?",
    )
    for lengths in _BATCHES:
        words, offsets = _bags(lengths)
        one = weight.clone().requires_grad_()
        expected = embedding_bag(words, one, offsets, mode="sum")
        scales = torch.linspace(-1, 1, expected.numel()).view_as(expected) + 0.1
        (expected * scales).sum().backward()
        sums, has_graph = exam.on_rank(_forward_and_step, words, offsets, scales)
        if not _require_shape(exam, sums, len(lengths)):
            return
        for bag, (vector, right) in enumerate(zip(sums, expected, strict=True)):
            exam.require(
                torch.allclose(vector, right, atol=1e-4),
                f"With bags of {list(lengths)} words, bag {bag} has a wrong vector, expected the sum of the vectors "
                "of its words.",
            )
        exam.require(has_graph, "The sums are right, but no gradient reaches the owners, expected a gradient on both.")
        after = exam.on_rank(_vectors)
        for row, (old, new, gradient) in enumerate(zip(weight, after, one.grad, strict=True)):
            what = "did not move" if new.equal(old) else "moved differently"
            exam.require(
                (old - new - gradient).abs().amax() <= 1e-4,
                f"The sums are right, but in a step of SGD, row {row} {what}, expected the step of one table.",
            )
        if exam.fault:
            return
        weight = after


def _require_shape(exam, vectors, bags):
    """Require a vector for each bag."""
    expected = (bags, _COLUMNS)
    shape = f"shape {tuple(vectors.shape)}" if hasattr(vectors, "shape") else show(vectors)
    return exam.require(
        tuple(getattr(vectors, "shape", ())) == expected,
        f"For {bags} bags, `forward` returned {shape}, expected {expected}.",
    )


def _bags(lengths):
    """Return words from all over the table, and the offsets of bags with these lengths."""
    lengths = torch.tensor(lengths)
    return torch.arange(lengths.sum()) * 27 % _ROWS, lengths.cumsum(0) - lengths


# On trainer 0, the functions below run in the process of the learner's code.


def _make_model() -> Weights:
    """Make a model for this trainer alone, and return its weights."""
    lesson = vars(learners_module())
    with one_line_errors():
        table = RemoteModule("server/cpu", lesson["Table"], (_ROWS,))
        kept["model"] = lesson["HybridModel"](table, lesson["alone"], "cpu")
        return weights_of(kept["model"])


def _make_optimizer() -> str:
    """Keep the learner's optimizer. Return a description of an object without a method `step`, or an empty string."""
    with one_line_errors():
        kept["optimizer"] = answer("two_optimizers", [kept["model"], _RATE])
    return "" if hasattr(kept["optimizer"], "step") else show(plain(kept["optimizer"]))


def _step(words, offsets, label) -> Weights:
    """Make a step with the learner's optimizer, and return the weights afterwards."""
    model = kept["model"]
    with one_line_errors(), dist_autograd.context() as context:
        dist_autograd.backward(context, [cross_entropy(model(words, offsets), label)])
        kept["optimizer"].step(context)
        return weights_of(model)


def _make_tables() -> list[torch.Tensor]:
    """Make some tables on the server, and return their weights."""
    lesson = vars(learners_module())
    with one_line_errors():
        arguments = [(_ROWS, _COLUMNS, True, 10 + table) for table in range(_TABLES)]
        kept["modules"] = [RemoteModule("server/cpu", lesson["Table"], each) for each in arguments]
        kept["tables"] = [module.get_module_rref() for module in kept["modules"]]
        return [rpc.rpc_sync("server", weight_of_table, (table,)) for table in kept["tables"]]


def _look_up(rows, offsets, scales) -> tuple[object, list, list]:
    """Call the learner's lookup, and a backward pass through it if its result has the right shapes.

    Return the result, the RPCs that it made, and the gradient of each table on the server.
    """
    with dist_autograd.context() as context:
        vectors, made = answer_with_rpc("my_lookup", [list(kept["tables"]), rows, offsets])
        made = [call for call in made if call.function != _TYPE_OF_RREF]
        each = list(vectors) if isinstance(vectors, list | tuple | torch.Tensor) else []
        with_graph = [part for part in each if getattr(part, "requires_grad", False) and part.shape == scales.shape]
        with one_line_errors():
            if with_graph:
                dist_autograd.backward(context, [sum((part * scales).sum() for part in with_graph)])
            gradients = [rpc.rpc_sync("server", gradient_of, (context, table)) for table in kept["tables"]]
    return vectors, made, gradients


def _make_table(size, owners):
    """Make a table of the learner's class, and return how many rows are on each owner by its `remote_parameters`."""
    with one_line_errors():
        kept["table"] = answer("SplitTable", [size, list(owners)])
        rows_on = dict.fromkeys(owners, 0)
        for parameter in kept["table"].remote_parameters():
            owner = parameter.owner_name()
            rows_on[owner] = rows_on.get(owner, 0) + rpc.rpc_sync(parameter.owner(), rows_of, (parameter,))
        return rows_on


def _vectors():
    """Return the vector of each row of the learner's table."""
    with one_line_errors(), torch.no_grad():
        return kept["table"].forward(torch.arange(_ROWS), torch.arange(_ROWS))


def _forward_and_step(words, offsets, scales):
    """Look up bags in the learner's table, and make a step of SGD along the gradient of their scaled sum.

    Return the sums of the bags, and whether they have a graph.
    """
    table = kept["table"]
    with one_line_errors(), dist_autograd.context() as context:
        sums = table.forward(words, offsets)
        has_graph = getattr(sums, "requires_grad", False)
        if has_graph and sums.shape == scales.shape:
            dist_autograd.backward(context, [(sums * scales).sum()])
            for parameter in table.remote_parameters():
                rpc.rpc_sync(parameter.owner(), step_of_sgd, (context, parameter))
        return sums, has_graph


# The functions below run on the owner of a parameter.


def gradient_of(context, reference):
    """Return the gradient of a table in a context as a dense tensor, None if there is none."""
    gradient = dist_autograd.get_gradients(context).get(reference.local_value().weight)
    return None if gradient is None else gradient.to_dense()


def rows_of(reference):
    """Return how many rows a parameter has."""
    return len(reference.local_value())


def step_of_sgd(context, reference):
    """Take a step of SGD with a parameter of this rank, at rate 1."""
    parameter = reference.local_value()
    gradient = dist_autograd.get_gradients(context).get(parameter)
    if gradient is not None:
        with torch.no_grad():
            parameter.sub_(gradient)
