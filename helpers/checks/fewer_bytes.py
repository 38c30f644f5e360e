"""Checks of what the learner writes in 11_fewer_bytes, and of its exercises."""

from contextlib import contextmanager

from helpers.checks.judging import Run, Verdict, Wrong, call_answer, judge
from helpers.checks.small_model import compare_gradients, loss, new_data, new_model

_SAMPLES, _STEPS = 3, 50
_EXACT = 1e-3  # what rounding to 1/64 in one step cannot reach
_FACTORS = (1e-7, 1.0, 1e7, 0.0)  # of the loss, and so of the gradients
_NEGATIVE, _UNLIKE = "one gradient that is not 0, and negative", "a loss multiplied by 1e+06 on the last rank alone"


def my_round(world) -> Verdict:
    """Check `my_round(matrix, right)`: one round of power iteration, which gives back a matrix of that rank."""

    def check(runs):
        for rank, run in enumerate(runs):
            shapes, orthonormal, off = run.result
            if shapes != ((12, 2), (9, 2)):
                raise Wrong(f"On rank {rank} P and Q have the shapes {shapes}, and the target is ((12, 2), (9, 2)).")
            if not orthonormal:
                raise Wrong(f"On rank {rank} the columns of P are not orthonormal.")
            if not off < 1e-4:
                raise Wrong(f"On rank {rank} the product of P and Q is off by {off:.0%} for a matrix of rank 2.")
        return "The columns of P are orthonormal, and for a matrix of rank 2 the product is the matrix."

    return judge(world, "my_round", check, _run_one_round)


def scaled(world) -> Verdict:
    """Check `scaled(state, bucket)`, a hook that sends fp16 without leaving its range.

    The gradients that it gets are of four magnitudes, one of them 0; all 0 but for a negative one; and of another
    magnitude on the last rank.
    """

    def check(runs):
        for rank, run in enumerate(runs):
            for case, sizes, types, numbers, buckets, difference in run.result:
                about = f"With {case}, on rank {rank}"
                if "torch.bfloat16" in types:
                    raise Wrong(f"Rank {rank} sent numbers of torch.bfloat16, and the target is torch.float16.")
                if difference:
                    raise Wrong(f"{about} {difference} those of one process.")
                if sum(sizes) > 2 * numbers + 4 * buckets:
                    raise Wrong(
                        f"Rank {rank} gave {sum(sizes)} bytes to all-reduce for {numbers} numbers in {buckets} "
                        f"buckets, and the target is at most {2 * numbers + 4 * buckets}."
                    )
        _, sizes, _, numbers, _, _ = runs[0].result[0]
        return f"The gradients are right at every magnitude, and {numbers} numbers took {sum(sizes)} bytes."

    return judge(world, "scaled", check, _run_scaled)


def coarse(world) -> Verdict:
    """Check `coarse(missed, bucket)`, a hook that rounds to multiples of 1/64 and loses nothing in the long run."""
    bound = world.size / 64

    def check(runs):
        for rank, run in enumerate(runs):
            fine, first, name, difference = run.result
            if fine:
                raise Wrong(f"Rank {rank} sent numbers that have not been rounded.")
            if first < _EXACT:
                raise Wrong(f"After one step rank {rank} has finer gradients than rounding them to 1/64 can give.")
            if not difference <= bound * 1.01:
                raise Wrong(
                    f"What arrived on rank {rank} in {_STEPS} steps for {name} is off by up to {difference:.2f}, "
                    f"and the target is at most {bound:.2f}."
                )
        return f"Every number was rounded, and after {_STEPS} steps the sums are off by at most {bound:.2f}."

    return judge(world, "coarse", check, _run_coarse)


def _run_one_round():
    import torch

    generator = torch.Generator().manual_seed(1)
    thin, flat, right = (torch.randn(*shape, generator=generator) for shape in ((12, 2), (2, 9), (9, 2)))
    run = call_answer("my_round", [thin @ flat, right])
    if run.error:
        return run
    pair = run.result if isinstance(run.result, tuple | list) else [run.result]
    shapes = tuple(tuple(x.shape) if isinstance(x, torch.Tensor) else type(x).__name__ for x in pair)
    if shapes != ((12, 2), (9, 2)):
        return run._replace(result=(shapes, False, 1.0))
    left, right = pair
    orthonormal = torch.allclose(left.T @ left, torch.eye(2), atol=1e-4)
    off = (thin @ flat - left @ right.T).norm() / (thin @ flat).norm()
    return run._replace(result=(shapes, orthonormal, off.item()))


def _run_scaled():
    import torch.distributed as dist

    rank, n = dist.get_rank(), dist.get_world_size()
    data = [new_data(other, _SAMPLES) for other in range(n)]
    findings = []
    cases = {f"a loss multiplied by {factor:g}": [factor] * n for factor in _FACTORS}
    cases |= {_NEGATIVE: [0.0] * n, _UNLIKE: [1.0] * (n - 1) + [1e6]}
    for case, factors in cases.items():

        def total(model, other, case=case, factors=factors):
            layers = getattr(model, "module", model)
            return factors[other] * loss(model, [data[other]]) - (case == _NEGATIVE) * layers[-1].bias[0]

        model, runs = _hooked("scaled", None)
        for _ in range(2):  # several buckets from the second step on
            model.zero_grad()
            runs.clear()
            with _all_reduced() as tensors:
                failed = _backward(total(model, rank), runs)
            if failed:
                return failed
        whole = new_model()
        (sum(total(whole, other) for other in range(n)) / n).backward()
        numbers = sum(parameter.numel() for parameter in whole.parameters())
        sizes = [tensor.nbytes for tensor in tensors]
        types = {str(tensor.dtype) for tensor in tensors}
        difference = compare_gradients(model.module, whole, tolerance=5e-3)
        findings.append((case, sizes, types, numbers, len(runs), difference))
    return Run(findings, [], "")


def _run_coarse():
    import torch
    import torch.distributed as dist

    rank, n = dist.get_rank(), dist.get_world_size()
    data = [new_data(other, _SAMPLES) for other in range(n)]
    model, runs = _hooked("coarse", {})
    sums = {name: torch.zeros_like(parameter) for name, parameter in model.module.named_parameters()}
    whole = new_model()
    loss(whole, data).backward()
    fine = False
    for step in range(_STEPS):
        model.zero_grad()
        with _all_reduced() as tensors:
            failed = _backward(loss(model, [data[rank]]), runs)
        if failed:
            return failed
        # Ranks may average before they round or after it.
        fine = fine or any(all(_fine(factor * 64 * tensor) for factor in (1, n)) for tensor in tensors)
        for name, parameter in model.module.named_parameters():
            sums[name] += parameter.grad
        if step == 0:
            first = max((sums[name] - p.grad).abs().max().item() for name, p in whole.named_parameters())
    off = {name: (sums[name] - _STEPS * p.grad).abs().max().item() for name, p in whole.named_parameters()}
    worst = max(off, key=off.get)
    return Run((fine, first, worst, off[worst]), [], "")


def _fine(tensor):
    """Whether some numbers of a tensor are far from integers."""
    return bool(((tensor - tensor.round()).abs() > 0.02).any())


def _hooked(function, state):
    """Return a model in DDP that calls the learner's hook, and a list of what came of each call."""
    import torch
    from torch.nn.parallel import DistributedDataParallel as DDP

    from helpers.measure.torch_parts import Future

    runs = []

    def hook(state, bucket):
        runs.append(call_answer(function, [state, bucket]))
        if not runs[-1].error and not isinstance(runs[-1].result, Future):
            error = f"TypeError: a hook returns a future, and this one a {type(runs[-1].result).__name__}"
            runs[-1] = runs[-1]._replace(error=error)
        if not runs[-1].error:
            return runs[-1].result
        nothing = torch.futures.Future()
        nothing.set_result(bucket.buffer())
        return nothing

    model = DDP(new_model(), bucket_cap_mb=0.0001)
    model.register_comm_hook(state, hook)
    return model, runs


def _backward(loss, runs):
    """Compute gradients; return the run of a hook that failed, or None."""
    try:
        loss.backward()
    except Exception as error:
        return Run(None, [], f"{type(error).__name__}: {error}")
    return next((run for run in runs if run.error), None)


@contextmanager
def _all_reduced():
    """List copies of the tensors that this process gives to all-reduce from Python inside the block."""
    import torch.distributed as dist

    all_reduce, tensors = dist.ProcessGroup.allreduce, []

    def recorded(group, given, *options):
        tensors.extend(tensor.clone() for tensor in ([given] if hasattr(given, "clone") else given))
        return all_reduce(group, given, *options)

    dist.ProcessGroup.allreduce = recorded
    try:
        yield tensors
    finally:
        dist.ProcessGroup.allreduce = all_reduce
