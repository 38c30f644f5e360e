"""Exercises of 11_a_ddp_of_your_own: the steps to a DDP, and the whole class, against one process and against DDP."""

import inspect
from collections.abc import Sequence
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from helpers import tap
from helpers.checks.exam import AnswerError, answer, errors_of_answer, exercise, missing, plain, show
from helpers.checks.judging import TIMEOUT_ERROR
from helpers.checks.learner import learners_module

_WIDTH, _SAMPLES = 6, 4
_LAYER = 8 * _WIDTH**2  # bytes of the weights of one layer in double precision
_EXACT = {torch.float64: 1e-12, torch.float32: 1e-5}  # tolerances, relative to the largest gradient of a parameter
_LAST_GRADIENT, _END_OF_BACKWARD = "last gradient", "end of backward"
_SIZES = 8, 2, 6, 3, 1, 4, 4, 12, 2, 5  # of parameters, in elements
_DTYPES = (torch.float64, torch.float32, torch.float32, torch.float64, torch.float32) * 2
_HALVES = (torch.float16, torch.bfloat16) * 5  # of the same size, and not the same dtype


class TrainingCase(NamedTuple):
    """A training run that a class must reproduce, and the beginning of each sentence about it.

    `steps` has the micro-batches of each step; a micro-batch says, by rank, in which order the model calls its
    branches. All micro-batches of a step except the last are under `no_sync`. `limit` is the limit of a bucket in
    bytes. `find_unused` is None for a class that does not take it. With `keeps_gradients`, each step begins with the
    gradients of the step before it, set to zero, rather than with None.
    """

    where: str
    model: str
    limit: int
    steps: list[list[list[str]]]
    find_unused: bool | None = None
    keeps_gradients: bool = False

    @property
    def arguments(self) -> list:
        """The arguments of the class after the module."""
        megabytes = self.limit / 2**20
        return [megabytes] if self.find_unused is None else [megabytes, self.find_unused]


class TrainedStep(NamedTuple):
    """What a step did: the gradients that it left, its calls, and the calls that it made under `no_sync`.

    A call is a pair of a name and bytes; "wait" and the moments of backward have no bytes.
    """

    gradients: list[torch.Tensor | None]
    calls: list[tuple[str, int]]
    quiet: list[tuple[str, int]]


@exercise
def MyStart(exam):
    """Check `MyStart(module)`: every rank gets the parameters and buffers of rank 0."""
    _judge_start(exam, "MyStart", [])
    return "Every rank begins with the parameters and buffers of rank 0, and a call reaches the module."


@exercise
def my_buckets(exam):
    """Check `my_buckets(parameters, limit)`: buckets of one dtype, from last to first, closed at the limit."""
    for dtypes in ([torch.float64] * len(_SIZES), list(_DTYPES), list(_HALVES)):
        for limit in (48, 1, 10**6):
            # Each parameter holds its own number.
            parameters = [
                nn.Parameter(torch.full((size,), float(place), dtype=dtype))
                for place, (size, dtype) in enumerate(zip(_SIZES, dtypes, strict=True))
            ]
            sizes = [parameter.nbytes for parameter in parameters]
            result, is_unchanged = exam.on_rank(_split, parameters, limit)
            if exam.require(
                _is_list_of_parameters(result),
                f"Rank {exam.rank} returned {show(result)}, expected a list of lists of parameters.",
            ):
                _require_buckets(exam, limit, [[int(p.flatten()[0]) for p in part] for part in result], sizes, dtypes)
            exam.require(
                is_unchanged,
                f"On rank {exam.rank} `my_buckets` changed the list `parameters`, expected no change: the caller needs "
                "it for the hooks.",
            )
    return "The buckets go from the last parameter to the first, each of one dtype, and close at the limit."


@exercise
def MyHooks(exam):
    """Check `MyHooks(module, bucket_cap_mb)`: averages, early launches, and the same order on all ranks."""
    if _judge_cases(exam, "MyHooks", _cases_of_hooks(exam.n)):
        _judge_ready(exam)
    return "Every rank has the gradients of one process, and all ranks launch their buckets in the same order."


@exercise
def MyNoSync(exam):
    """Check `MyNoSync(module, bucket_cap_mb)`: nothing is sent under `no_sync`, and what has been added up is kept."""
    if _judge_cases(exam, "MyNoSync", [*_cases_of_hooks(exam.n), _quiet_case(exam.n)]):
        _judge_error(exam, "MyNoSync", []) and _judge_two_models(exam, "MyNoSync")
    return "Under `no_sync` no rank sent anything, and the last micro-batch averaged the accumulated gradients."


@exercise
def MyUnused(exam):
    """Check `MyUnused(module, bucket_cap_mb, find_unused)`: parameters without a gradient, on some ranks or on all."""
    cases = [*_cases_of_hooks(exam.n), *_cases_of_unused(exam.n)]
    if _judge_cases(exam, "MyUnused", cases):
        _judge_undeclared(exam, "MyUnused")
    return "Every rank has the gradients of one process, whichever branch it takes, with one more message in each step."


@exercise
def MyDDP(exam):
    """Check `MyDDP(module, bucket_cap_mb, find_unused)` by all of these, against one process and against DDP."""
    n, name = exam.n, "MyDDP"
    first = [*_cases_of_hooks(n), _case_of_mebibytes(n), _mixed_case(n), _quiet_case(n), _kept_case(n)]
    names = exam.on_rank(_names_of_arguments, name)
    exam.require(
        {"bucket_cap_mb", "find_unused"} <= set(names),
        f"`MyDDP` takes {', '.join(names)}, expected module, bucket_cap_mb and find_unused.",
    )
    if (
        _judge_start(exam, name, [])
        and _judge_cases(exam, name, first)
        and _judge_against_ddp(exam, name)
        and _judge_error(exam, name, [])
        and _judge_two_models(exam, name)
        and _judge_cases(exam, name, _cases_of_unused(n))
        and _judge_undeclared(exam, name)
    ):
        _judge_buffers(exam, name)
    return "Every rank has the gradients of one process within 1e-12, with as many all-reduces and bytes as DDP."


@exercise
def MyRebuild(exam):
    """Check `MyRebuild(module, bucket_cap_mb, find_unused)`: from step 2 on, buckets in the order of gradients."""
    crossed = _cases_of_hooks(exam.n)[-1]
    muddled = TrainingCase(
        "With layers defined from last to first, ", "muddled", _LAYER, [[_everywhere("", exam.n)]] * 3
    )
    if _judge_cases(exam, "MyRebuild", [muddled, crossed]) and _judge_order(exam):
        _judge_cases(exam, "MyRebuild", [_quiet_case(exam.n), _cases_of_unused(exam.n)[1]])
    return "From step 2 on the buckets follow the gradients of rank 0, on every rank."


# The cases.


def _everywhere(route, n):
    """Return a micro-batch in which every rank calls the same branches."""
    return [route] * n


def _cases_of_hooks(n):
    crossed = [["lr", "rl"][rank % 2] for rank in range(n)]
    back = [["rl", "lr"][rank % 2] for rank in range(n)]
    return [
        TrainingCase("", "chain", _LAYER, [[_everywhere("", n)]] * 3),
        TrainingCase("In one bucket, ", "chain", 10**6, [[_everywhere("", n)]] * 2),
        TrainingCase(
            "With gradients that arrive in a different order on every second rank, ",
            "branches",
            _LAYER,
            [[crossed], [back], [crossed]],
        ),
    ]


def _case_of_mebibytes(n):
    """Return a case with a limit that an answer misses if its megabytes have 10**6 bytes."""
    limit = _LAYER + 52
    where = f"With `bucket_cap_mb` at {limit} / 2**20, "
    return TrainingCase(where, "chain", limit, [[_everywhere("", n)]])


def _mixed_case(n):
    return TrainingCase("With parameters in float32 and in float64, ", "mixed", _LAYER, [[_everywhere("", n)]] * 2)


def _quiet_case(n):
    parts = [_everywhere("", n)]
    return TrainingCase(
        "With two micro-batches under `no_sync` and one after it, ", "chain", _LAYER, [3 * parts, parts] * 2
    )


def _kept_case(n):
    where = "With `zero_grad(set_to_none=False)`, "
    return TrainingCase(where, "chain", _LAYER, [[_everywhere("", n)]] * 3, keeps_gradients=True)


def _cases_of_unused(n):
    one, other, both = (_everywhere(route, n) for route in ("l", "r", "lr"))
    by_rank = [["l", *(n - 1) * ["r"]]], [[*(n - 1) * ["r"], "lr"]]
    return [
        TrainingCase("With find_unused and every parameter in use, ", "branches", _LAYER, [[both], [both]], True),
        TrainingCase("With a branch that differs by step, ", "branches", _LAYER, [[one], [other], [both]], True),
        TrainingCase("With a branch that differs by rank, ", "branches", _LAYER, [*by_rank, [both]], True),
        TrainingCase(
            "With a branch that only a micro-batch under `no_sync` uses, ", "branches", _LAYER, [[one, other]], True
        ),
    ]


def _judge_cases(exam, name, cases):
    """Require that a class gets these cases right; return whether it did on all ranks. Stop after a wrong case."""
    return all(_judge_case(exam, name, case) for case in cases)


def _judge_case(exam, name, case):
    model = "" if case.where else "With two layers that share their parameters and a layer with a frozen bias, "
    with _errors_placed(name, case.where or model):
        steps = exam.on_rank(_train, name, case, exam.rank, exam.n)
    names, _ = _parameters_of(case.model)
    for number, (step, parts) in enumerate(zip(steps, case.steps, strict=True), start=1):
        where = f"{case.where}{'in' if case.where else 'In'} step {number} "
        _require_calls(exam, where, case, number, step)
        expected = _gradients_of_one_process(case.model, number, parts, range(exam.n))
        own = _gradients_of_one_process(case.model, number, parts, [exam.rank])
        fault = _difference(names, step.gradients, expected, own)
        exam.require(not fault, f"{where}on rank {exam.rank} {fault}.")
    return _all_well(exam)


@contextmanager
def _errors_placed(name, where):
    """Name the case in the first line of an error that the answer raises; `where` begins a sentence."""
    try:
        yield
    except AnswerError as error:
        if str(error) == missing(name):
            raise
        first = str(error).partition("\n")[0].removesuffix(".")
        raise AnswerError(f"{first}. This happened {where[0].lower()}{where[1:].removesuffix(', ')}.") from error


def _require_calls(exam, where, case, number, step):
    """Require that a step launched its buckets and no more, at the right time."""
    names, sizes = _parameters_of(case.model)
    buckets, size = len(_expected_buckets(case)), sum(sizes)
    quiet = sum(nbytes for _, nbytes in _sent(step.quiet))
    exam.require(
        not _sent(step.quiet), f"{where}rank {exam.rank} sent {quiet} bytes under `no_sync`, expected nothing."
    )
    sent, extra = _sent(step.calls), int(bool(case.find_unused))
    bytes_sent = sum(nbytes for _, nbytes in sent)
    what = "one for each bucket" + ", and one for what is in use" * extra
    exam.require(
        len(sent) == buckets + extra,
        f"{where}rank {exam.rank} called {_counted(sent)} in the backward pass and `finish`, "
        f"expected {buckets + extra} all_reduce, {what}.",
    )
    most = size + 8 * extra * len(names)
    exam.require(
        size <= bytes_sent <= most,
        f"{where}rank {exam.rank} sent {bytes_sent} bytes, expected {size}, the bytes of all gradients"
        + (f", and at most {most - size} bytes for what is in use." if extra else "."),
    )
    if buckets > 1 and (case.model == "chain" or case.model == "muddled" and number > 1):
        exam.require(
            _sent(_before(_LAST_GRADIENT, step.calls)),
            f"{where}rank {exam.rank} launched its first bucket after backward had computed the last gradient, "
            "expected a launch as soon as the bucket is full.",
        )
    exam.require(
        ("wait", 0) not in _before(_END_OF_BACKWARD, step.calls),
        f"{where}rank {exam.rank} waited for a bucket before backward had ended, expected it to wait in `finish`.",
    )


def _sent(calls):
    """Return the calls that send what depends on a gradient: all collectives except the broadcasts of buffers."""
    return [call for call in calls if call[0] not in ("broadcast", "wait", _LAST_GRADIENT, _END_OF_BACKWARD)]


def _before(moment, calls):
    names = [name for name, _ in calls]
    return calls[: names.index(moment)] if moment in names else calls


def _counted(calls):
    names = [name for name, _ in calls]
    return ", ".join(f"{names.count(name)} {name}" for name in sorted(set(names))) or "no collective"


def _difference(names, gradients, expected, own):
    """Return how gradients differ from the gradients of one process, in words, or None."""
    for name, mine, right in zip(names, gradients, expected, strict=True):
        if right is None and mine is not None:
            return f"`{name}` has a gradient, expected None, because no rank used it"
        if right is not None and mine is None:
            return f"the gradient of `{name}` is None, expected the mean over all ranks"
    pairs = [
        (name, mine, right, local)
        for name, mine, right, local in zip(names, gradients, expected, own, strict=True)
        if right is not None
    ]
    wrong = [(name, mine, local) for name, mine, right, local in pairs if not _close(mine, right)]
    if not wrong:
        return None
    factor = (pairs[-1][1].double().norm() / pairs[-1][2].double().norm()).item()
    if factor and all(_close(mine / factor, right) for _, mine, right, _ in pairs):
        return f"the gradients are {factor:.2f} times those of one process"
    name, mine, local = wrong[0]
    if local is not None and _close(mine, local):
        return f"the gradient of `{name}` is still this rank's own, expected the mean over all ranks"
    return f"the gradient of `{name}` differs from the gradient of one process"


def _close(mine, right):
    if mine.shape != right.shape or mine.dtype != right.dtype:
        return False
    return bool((mine - right).abs().max() <= _EXACT[right.dtype] * max(right.abs().max().item(), 1e-9))


def _expected_buckets(case):
    """Return the bytes of the buckets of a case: one open bucket for each dtype, closed when it reaches the limit."""
    closed, still_open = [], {}
    for parameter in reversed([p for p in _MODELS[case.model]().parameters() if p.requires_grad]):
        still_open[parameter.dtype] = still_open.get(parameter.dtype, 0) + parameter.nbytes
        if still_open[parameter.dtype] >= case.limit:
            closed.append(still_open.pop(parameter.dtype))
    return [*closed, *still_open.values()]


def _parameters_of(model):
    """Return the names and the bytes of the parameters of a model that are not frozen."""
    trained = [(name, p.nbytes) for name, p in _MODELS[model]().named_parameters() if p.requires_grad]
    return [name for name, _ in trained], [nbytes for _, nbytes in trained]


def _gradients_of_one_process(model, step, parts, ranks):
    """Return the gradients of the mean over these ranks, added up over the micro-batches of a step."""
    network = _MODELS[model]()
    for number, routes in enumerate(parts):
        for rank in ranks:
            (_loss(network, _inputs(step, number, rank), routes[rank]) / len(ranks)).backward()
    return [parameter.grad for parameter in network.parameters() if parameter.requires_grad]


# The other judges. Each returns whether all ranks are well so far.


def _judge_start(exam, name, arguments):
    rank = exam.rank
    before, after, trained, output, expected, is_module = exam.on_rank(_start, name, arguments, rank)
    exam.require(
        is_module, f"Rank {rank} made another kind of object, expected an nn.Module with the attribute `module`."
    )
    model = _differing_model(0)
    kinds = {key: "parameter" if p.requires_grad else "frozen parameter" for key, p in model.named_parameters()}
    for key, right in _tensors_of(model).items():
        kind = kinds.get(key, "buffer")
        own = " It is still the rank's own." if rank and torch.equal(after[key], before[key]) else ""
        exam.require(torch.equal(after[key], right), f"On rank {rank} the {kind} `{key}` differs from rank 0's.{own}")
    for key, parameter in model.named_parameters():
        changed = "no longer a leaf that requires" if parameter.requires_grad else "not frozen any more, and requires"
        exam.require(
            trained[key] == parameter.requires_grad,
            f"On rank {rank} the {kinds[key]} `{key}` is {changed} a gradient: broadcast `parameter.detach()`, and "
            "leave `requires_grad` as it is.",
        )
    exam.require(
        isinstance(output, torch.Tensor) and torch.equal(output, expected),
        f"Rank {rank} called the model and got {show(output)}, expected the output of the module.",
    )
    return _all_well(exam)


def _judge_ready(exam):
    """Require that hooks call `ready`, which derived classes override, and that `finish` can call it as well."""
    counts, gradients = exam.on_rank(_through_ready, exam.rank, exam.n)
    names, _ = _parameters_of("branches")
    exam.require(
        counts == len(names) - 1,
        f"On rank {exam.rank} the hooks called `ready` {counts} times for {len(names) - 1} gradients. Step 4 "
        "overrides `ready`, so register `self.ready` as the hook of each parameter.",
    )
    expected = _gradients_of_one_process("branches", 1, [_everywhere("l", exam.n)], range(exam.n))
    expected = [torch.zeros_like(gradients[0]) if right is None else right for right in expected]
    own = [None] * len(names)
    fault = _difference(names, gradients, expected, own)
    exam.require(
        not fault,
        f"After `ready(parameter)` for a parameter without a gradient, which step 5 needs, on rank {exam.rank} "
        f"{fault}. One call of `ready` may have to launch several full buckets.",
    )
    return _all_well(exam)


def _judge_error(exam, name, arguments):
    """Require that the gradients of a step are averaged after an error inside `no_sync`."""
    with _errors_placed(name, "In the step after an error inside `no_sync`, "):
        sent = exam.on_rank(_after_an_error, name, arguments, exam.rank)
    exam.require(
        sent,
        f"After an error inside `no_sync`, rank {exam.rank} sent nothing in the next step, expected its gradients. "
        "Use try and finally.",
    )
    return _all_well(exam)


def _judge_two_models(exam, name):
    """Require that a model sends its gradients while another model is under `no_sync`."""
    with _errors_placed(name, "In a step of a model while another model was under `no_sync`, "):
        sent = exam.on_rank(_beside_another, name, exam.rank)
    exam.require(
        sent,
        f"While another model was under `no_sync`, rank {exam.rank} sent nothing for this model, expected its "
        "gradients. Does `self` keep the flag?",
    )
    return _all_well(exam)


def _judge_order(exam):
    """Require that the buckets of `MyRebuild` follow the gradients of rank 0, which arrive in an order of their own."""
    case = TrainingCase("", "uneven", 1, [[["120", *(exam.n - 1) * ["201"]]]] * 2)
    with _errors_placed("MyRebuild", "With gradients that arrive in a different order on rank 0, "):
        steps = exam.on_rank(_train, "MyRebuild", case, exam.rank, exam.n)
    sizes, expected = [nbytes for _, nbytes in _sent(steps[-1].calls)], _arrivals_on_rank_0(case)
    exam.require(
        sizes == expected,
        f"In step 2 rank {exam.rank} launched buckets of {sizes} bytes, expected {expected}: on rank 0 the gradients "
        "of step 1 arrived in this order.",
    )
    return _all_well(exam)


def _arrivals_on_rank_0(case):
    """Return the bytes of each gradient of a model without biases, in the order in which they arrive on rank 0."""
    network, arrived = _MODELS[case.model](), []
    for parameter in network.parameters():
        parameter.register_post_accumulate_grad_hook(lambda parameter: arrived.append(parameter.nbytes))
    _loss(network, _inputs(1, 0, 0), case.steps[0][0][0]).backward()
    return arrived


def _judge_undeclared(exam, name):
    raised = exam.on_rank(_undeclared, name, exam.rank)
    exam.require(
        raised == "RuntimeError",
        f"Without find_unused, a branch that no rank used led to {raised or 'no error'} on rank {exam.rank}, expected "
        "a RuntimeError.",
    )
    return _all_well(exam)


def _judge_against_ddp(exam, name):
    """Require as many all-reduces and bytes in a step as DDP has with the same limit."""
    for model in ("chain", "mixed"):
        case = TrainingCase("", model, _LAYER, [[_everywhere("", exam.n)]] * 2)
        of_ddp = exam.on_rank(_buckets_of_ddp, case, exam.rank)
        mine = _sent(exam.on_rank(_train, name, case, exam.rank, exam.n)[-1].calls)
        bytes_sent = sum(nbytes for _, nbytes in mine)
        exam.require(
            (len(mine), bytes_sent) == (len(of_ddp), sum(of_ddp)),
            f"Rank {exam.rank} sent {bytes_sent} bytes in {len(mine)} collectives, expected {sum(of_ddp)} bytes in "
            f"{len(of_ddp)} all-reduces, as DDP with the same limit.",
        )
    return _all_well(exam)


def _judge_buffers(exam, name):
    seen, total = exam.on_rank(_buffers_seen, name, exam.rank)
    expected = {"total": _differing_model(0).total, "count": _differing_model(0).count}
    for number, buffers in enumerate(seen, start=1):
        mode = ", in evaluation mode" if number == len(seen) else ""
        for key, right in expected.items():
            exam.require(
                torch.equal(buffers[key], right),
                f"In forward pass {number}{mode}, the buffer `{key}` of rank {exam.rank} begins with "
                f"{_first_of(buffers[key])}, expected {_first_of(right)}, as on rank 0.",
            )
        inputs = _inputs(number, 0, 0)
        expected = {"total": expected["total"] + inputs.sum(0), "count": expected["count"] + _positive(inputs)}
    own = (seen[-1]["total"] + _inputs(len(seen), 0, exam.rank).sum(0)).flatten()
    exam.require(
        torch.equal(total, own),
        f"After forward pass {len(seen)}, the buffer `total` of rank {exam.rank} begins with {_first_of(total)}, "
        f"expected {_first_of(own)}, the value after this rank's own pass. Replace buffers only before a forward pass.",
    )
    return _all_well(exam)


def _first_of(tensor):
    return f"{tensor.flatten()[0].item():.3g}"


def _all_well(exam):
    """Return whether no rank has noted a fault, so that all ranks stop after the same case."""
    return exam.on_rank(_no_fault_anywhere, exam.fault is None)


# The buckets by themselves.


def _is_list_of_parameters(value):
    if not isinstance(value, list | tuple):
        return False
    return all(isinstance(part, list | tuple) and all(isinstance(p, torch.Tensor) for p in part) for part in value)


def _require_buckets(exam, limit, buckets, sizes, dtypes):
    """Require the right buckets; `buckets`, `sizes` and `dtypes` give each parameter by its number."""
    rank, given = exam.rank, sum(buckets, [])
    for number in range(len(sizes)):
        count = given.count(number)
        exam.require(count == 1, f"On rank {rank} parameter {number} is in {count} buckets, expected 1.")
    for number, bucket in enumerate(buckets):
        exam.require(bucket, f"Bucket {number} of rank {rank} is empty, expected at least one parameter.")
        kinds = sorted({str(dtypes[place]) for place in bucket})
        exam.require(
            len(kinds) <= 1, f"Bucket {number} of rank {rank} mixes {' and '.join(kinds)}, expected one dtype."
        )
        before_last = sum(sizes[place] for place in bucket[:-1])
        exam.require(
            before_last < limit,
            f"Bucket {number} of rank {rank} continues after {before_last} bytes, expected it to close at the limit "
            f"of {limit}.",
        )
    full = [sum(sizes[place] for place in bucket) >= limit for bucket in buckets]
    closed_at = [bucket[-1] for bucket, is_full in zip(buckets, full, strict=True) if is_full]
    for dtype in sorted(set(dtypes), key=str):
        of_dtype = [bucket for bucket in buckets if bucket and dtypes[bucket[0]] == dtype]
        order = sum(of_dtype, [])
        exam.require(
            order == sorted(order, reverse=True),
            f"The buckets of {dtype} on rank {rank} hold the parameters {of_dtype}, expected the order from last to "
            "first.",
        )
        for bucket, _ in pairwise(of_dtype):
            size = sum(sizes[place] for place in bucket)
            exam.require(
                size >= limit,
                f"On rank {rank} a bucket of {dtype} closes at {size} bytes, expected it to reach the limit of "
                f"{limit} first.",
            )
    exam.require(
        closed_at == sorted(closed_at, reverse=True) and full == sorted(full, reverse=True),
        f"Rank {rank} returned the buckets {buckets} (parameter numbers), expected them in the order in which they "
        "close, and the buckets that never reach the limit last.",
    )


# Models and data.


class _Branches(nn.Module):
    """A model whose branches are called in the order that `route` says: "lr", "rl", "l" or "r"."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(_WIDTH, _WIDTH)
        self.left, self.right, self.head = (nn.Linear(_WIDTH, _WIDTH, bias=False) for _ in range(3))

    def forward(self, inputs, route):
        hidden = self.trunk(inputs).tanh()
        outputs = [self.left(hidden).sin() if side == "l" else self.right(hidden).tanh() for side in route]
        return self.head(torch.stack(outputs).sum(0))


class _Chain(nn.Module):
    """Layers in a row, of which two share their parameters; one bias is frozen."""

    def __init__(self):
        super().__init__()
        shared = nn.Linear(_WIDTH, _WIDTH)
        self.layers = nn.ModuleList([nn.Linear(_WIDTH, _WIDTH), shared, nn.Linear(_WIDTH, _WIDTH), shared])
        self.layers.append(nn.Linear(_WIDTH, _WIDTH))
        self.layers[2].bias.requires_grad_(False)

    def forward(self, inputs, route=""):
        for layer in self.layers:
            inputs = layer(inputs).tanh()
        return inputs


class _Muddled(nn.Module):
    """Layers in a row, which are defined from last to first."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(_WIDTH, _WIDTH, bias=False) for _ in range(4)])

    def forward(self, inputs, route=""):
        for layer in reversed(self.layers):
            inputs = layer(inputs).tanh()
        return inputs


class _Mixed(nn.Module):
    """Two layers in float32, and two in float64 after them."""

    def __init__(self):
        super().__init__()
        self.early = nn.Sequential(nn.Linear(_WIDTH, _WIDTH), nn.Linear(_WIDTH, _WIDTH))
        self.late = nn.Sequential(nn.Linear(_WIDTH, _WIDTH), nn.Linear(_WIDTH, _WIDTH))

    def forward(self, inputs, route=""):
        return self.late(self.early(inputs.float()).tanh().double())


class _Uneven(nn.Module):
    """Three layers of different sizes, which are called in the order that `route` says, such as "120"."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(_WIDTH, width, bias=False) for width in (1, 2, 3)])

    def forward(self, inputs, route):
        return torch.cat([self.layers[int(place)](inputs) for place in route], dim=1)


class _WithBuffers(nn.Module):
    """A layer that adds up its inputs in buffers; it records the buffers at the beginning of each forward pass.

    It changes `total` in place, and replaces `count` by a new tensor.
    """

    def __init__(self):
        super().__init__()
        self.layer, self.other = nn.Linear(_WIDTH, _WIDTH), nn.Linear(_WIDTH, _WIDTH)
        self.other.bias.requires_grad_(False)
        self.register_buffer("total", torch.randn(_WIDTH))
        self.register_buffer("count", torch.tensor(0), persistent=False)  # so it is not in the state_dict
        self.seen = []

    def forward(self, inputs, scale=1.0):
        self.seen.append({"total": self.total.clone(), "count": self.count.clone()})
        with torch.no_grad():
            self.total += inputs.sum(0)
            self.count = self.count + _positive(inputs)
        return self.other(self.layer(inputs).tanh()) * scale


def _seeded(seed, kind):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return kind()


def _mixed_model():
    model = _seeded(1, _Mixed)
    model.late.double()
    return model


_MODELS = {
    "branches": lambda: _seeded(1, _Branches).double(),
    "chain": lambda: _seeded(1, _Chain).double(),
    "mixed": _mixed_model,
    "muddled": lambda: _seeded(1, _Muddled).double(),
    "uneven": lambda: _seeded(1, _Uneven).double(),
}


def _differing_model(rank):
    """Return a model whose parameters and buffers differ by rank."""
    model = _seeded(rank, _WithBuffers).double()
    model.count += 10 * rank
    return model


def _tensors_of(model):
    """Return copies of the parameters and buffers of a model, by name."""
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {key: tensor.detach().clone() for key, tensor in named.items()}


def _positive(inputs):
    """Return a count that differs by rank, because the inputs do."""
    return (inputs > 0).sum()


def _inputs(step, part, rank):
    generator = torch.Generator().manual_seed(1000 * step + 100 * part + rank)
    return torch.randn(_SAMPLES, _WIDTH, generator=generator, dtype=torch.float64)


def _loss(model, inputs, route):
    return (model(inputs, route) ** 2).mean()


# The functions below run next to the learner's code.


def _names_of_arguments(name):
    """Return the names of the arguments that the learner's class takes."""
    if name not in vars(learners_module()):
        raise AnswerError(missing(name))
    return list(inspect.signature(vars(learners_module())[name]).parameters)


def _split(parameters, limit):
    """Return the learner's buckets, and whether the list of parameters is as it was."""
    given = list(parameters)
    result = answer("my_buckets", [given, limit])
    return result, [id(parameter) for parameter in given] == [id(parameter) for parameter in parameters]


def _start(name, arguments, rank):
    """Return what the learner's class did to a model, and whether the class is a module that keeps the model.

    These are the tensors before and after, whether each parameter is a leaf that requires a gradient afterwards, an
    output, and the right output.
    """
    model = _differing_model(rank)
    before = _tensors_of(model)
    wrapped = answer(name, [model, *arguments])
    after = _tensors_of(model)
    trained = {key: parameter.requires_grad and parameter.is_leaf for key, parameter in model.named_parameters()}
    is_module = isinstance(wrapped, nn.Module) and getattr(wrapped, "module", None) is model
    with errors_of_answer(), torch.no_grad():
        output = wrapped(_inputs(0, 0, 0), scale=2.0)
        return before, after, trained, plain(output), model(_inputs(0, 0, 0), scale=2.0), is_module


def _train(name, case, rank, n):
    """Return the steps of a case, trained with the learner's class."""
    model, log = _MODELS[case.model](), []
    # The first hook of a parameter is called first. In a muddled model the last parameter is used first.
    first_used = list(model.parameters())[-1 if case.model == "muddled" else 0]
    first_used.register_post_accumulate_grad_hook(lambda _: log.append((_LAST_GRADIENT, 0)))
    wrapped = answer(name, [model, *case.arguments])
    return [
        _step(
            wrapped,
            model,
            log,
            [(_inputs(number, part, rank), routes[rank]) for part, routes in enumerate(parts)],
            case.keeps_gradients,
        )
        for number, parts in enumerate(case.steps, start=1)
    ]


def _step(wrapped, model, log, parts, keeps_gradients=False):
    log.clear()
    with errors_of_answer(), _recorded(log):
        wrapped.zero_grad(set_to_none=not keeps_gradients)
        with wrapped.no_sync() if len(parts) > 1 else nullcontext():
            for inputs, route in parts[:-1]:
                _loss(wrapped, inputs, route).backward()
        quiet = [call for call in log if call[0] != _LAST_GRADIENT]
        log.clear()
        _loss(wrapped, *parts[-1]).backward()
        log.append((_END_OF_BACKWARD, 0))
        wrapped.finish()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return TrainedStep([None if p.grad is None else p.grad.clone() for p in trained], list(log), quiet)


@contextmanager
def _recorded(log: list):
    """Append every collective of this process, with the bytes that it brings, and every wait to a log."""

    def note_collective(event):
        log.append((event.name, sum(tensor.nbytes for tensor in event.inputs)))

    def note_wait(event):
        log.append(("wait", 0))

    with tap.subscribed(tap.Collective, begin=note_collective), tap.subscribed(tap.Wait, begin=note_wait):
        yield


def _through_ready(rank, n):
    """Return how often hooks called `ready` of a derived class, and gradients after `ready` was called for the rest."""
    counts = []

    class Derived(learners_module().MyHooks):
        def ready(self, parameter):
            counts.append(parameter)
            super().ready(parameter)

    model = _MODELS["branches"]()
    with errors_of_answer():
        wrapped = Derived(model, _LAYER / 2**20)
        _loss(wrapped, _inputs(1, 0, rank), "l").backward()
        by_hooks = len(counts)
        for bucket in wrapped.buckets:
            for parameter in list(bucket.waiting):
                wrapped.ready(parameter)
        wrapped.finish()
    return by_hooks, [p.grad.clone() for p in model.parameters() if p.requires_grad]


def _after_an_error(name, arguments, rank):
    """Return the collectives of a step after an error inside `no_sync`."""
    model, log = _MODELS["chain"](), []
    wrapped = answer(name, [model, *arguments])
    with errors_of_answer():
        try:
            with wrapped.no_sync():
                raise KeyError("an error inside no_sync")
        except KeyError:
            pass
    return _sent(_step(wrapped, model, log, [(_inputs(1, 0, rank), "")]).calls)


def _beside_another(name, rank):
    """Return the collectives of a step while another model is under `no_sync`."""
    model, log = _MODELS["chain"](), []
    wrapped, other = answer(name, [model]), answer(name, [_MODELS["chain"]()])
    with errors_of_answer(), other.no_sync():
        return _sent(_step(wrapped, model, log, [(_inputs(1, 0, rank), "")]).calls)


def _undeclared(name, rank):
    """Return the kind of the error that a parameter without a gradient leads to, "" without an error."""
    model = _MODELS["branches"]()
    wrapped = answer(name, [model, _LAYER / 2**20, False])
    try:
        _loss(wrapped, _inputs(1, 0, rank), "l").backward()
        wrapped.finish()
    except Exception as error:
        if TIMEOUT_ERROR.search(str(error)):
            with errors_of_answer():
                raise
        return type(error).__name__
    return ""


def _buckets_of_ddp(case: TrainingCase, rank: int) -> Sequence[int]:
    """Return the bytes of the buckets of DDP in its second step."""
    sizes = []

    def average(_, bucket):
        sizes.append(bucket.buffer().nbytes)
        work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    wrapped = DistributedDataParallel(_MODELS[case.model](), bucket_cap_mb=case.limit / 2**20)
    wrapped.register_comm_hook(None, average)
    for _ in range(2):
        sizes.clear()
        _loss(wrapped, _inputs(1, 0, rank), "").backward()
    return sizes


def _buffers_seen(name, rank):
    """Return the buffers at the beginning of each of three forward passes, and `total` after the last of them.

    The last pass is in evaluation mode, which makes no difference to the buffers of this model.
    """
    model = _differing_model(rank)
    wrapped = answer(name, [model])
    with errors_of_answer():
        for step in (1, 2, 3):
            wrapped.train(step < 3)
            wrapped.zero_grad()
            _loss(wrapped, _inputs(step, 0, rank), 1.0).backward()
            wrapped.finish()
    return model.seen, model.total


def _no_fault_anywhere(well):
    faults = torch.tensor(0 if well else 1)
    dist.all_reduce(faults)
    return faults.item() == 0
