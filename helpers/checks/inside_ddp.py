"""Checks of what the learner writes in 10_inside_ddp, and of its exercises."""

from contextlib import contextmanager

from helpers.checks.judging import Run, Verdict, Wrong, call_answer, judge
from helpers.checks.small_model import compare_gradients, loss, new_data, new_model

_SAMPLES = 3


def my_average(world) -> Verdict:
    """Check `my_average(tensor)`, which launches an all-reduce and returns the future of the mean over all ranks."""

    def check(runs):
        for rank, run in enumerate(runs):
            if isinstance(run.result, str):
                raise Wrong(f"Rank {rank} returned {run.result}, and the target is the future of a tensor.")
            for value, target in zip(*run.result, strict=True):
                if value != target:
                    raise Wrong(f"On rank {rank} the future holds {value} for numbers with the mean {target}.")
        return "The future holds the mean over all ranks, on every rank."

    return judge(world, "my_average", check, _run_averaging)


def accumulate_all(world) -> Verdict:
    """Check `accumulate_all(model, parts)`: gradients of the mean over all parts of all ranks, sent once.

    It is called with three parts, and then with one. Whether DDP sends the sum or the answer itself is left open.
    """

    def check(runs):
        for rank, run in enumerate(runs):
            for parts, events, sent, size, difference in run.result:
                times = f"With {parts} batch" + ("es" if parts > 1 else "")
                if sent != size:
                    raise Wrong(f"{times}, rank {rank} sent {sent} bytes of gradients, and the target is {size}.")
                if difference:
                    raise Wrong(f"{times}, on rank {rank} {difference} those of one process on all batches.")
                if events != [_SAMPLES, "backward"] * parts:
                    raise Wrong(f"{times}, rank {rank} did not take one batch after the other, each with its backward.")
        size = runs[0].result[0][3]
        return f"With 3 batches and with 1, every rank sent {size} bytes and has the gradients of one process."

    return judge(world, "accumulate_all", check, _run_accumulate_all)


def weigh(world) -> Verdict:
    """Check `weigh(samples, bucket)`, a communication hook that averages over samples rather than over ranks.

    It is called with other numbers of samples and another sum of them the second time.
    """

    def check(runs):
        for rank, run in enumerate(runs):
            for shares, calls, difference in run.result:
                for called in calls:
                    if not isinstance(called, dict):
                        raise Wrong(f"Rank {rank} returned {called}, and the target is a future.")
                    if called != {"all_reduce": 1}:
                        found = ", ".join(f"{count} {name}" for name, count in sorted(called.items()))
                        found = found or "no collective"
                        raise Wrong(f"Rank {rank} called {found} for a bucket, and the target is 1 all_reduce.")
                if difference:
                    raise Wrong(f"With {shares}, on rank {rank} {difference} those of one process.")
        return "Every sample has the same weight, whichever rank has it, after one all-reduce for each bucket."

    return judge(world, "weigh", check, _run_weigh)


def _run_averaging():
    import torch
    import torch.distributed as dist

    from helpers.measure.torch_parts import Future

    rank, n = dist.get_rank(), dist.get_world_size()
    run = call_answer("my_average", [torch.tensor([2.0 * rank, 4.0 - rank, 1.0])])
    if run.error:
        return run
    if not isinstance(run.result, Future):
        return run._replace(result=f"a {type(run.result).__name__}")
    value = run.result.wait()
    if not isinstance(value, torch.Tensor):
        return run._replace(result=f"the future of a {type(value).__name__}")
    return run._replace(result=(value.tolist(), [n - 1.0, 4.0 - (n - 1) / 2, 1.0]))


def _run_accumulate_all():
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP

    rank, n = dist.get_rank(), dist.get_world_size()
    findings = []
    for parts in (3, 1):
        model = DDP(new_model())
        model.register_comm_hook(None, _average)  # from Python, so that it counts
        events = _watch(model.module)
        data = [[new_data(parts * other + part, _SAMPLES) for part in range(parts)] for other in range(n)]
        with _sent() as sent:
            run = call_answer("accumulate_all", [model, data[rank]])
        if run.error:
            return run
        whole = new_model()
        loss(whole, sum(data, [])).backward()
        size = sum(parameter.nbytes for parameter in whole.parameters())
        findings.append((parts, events, sum(sent), size, compare_gradients(model.module, whole)))
    return Run(findings, [], "")


def _watch(model):
    """Return a list of what a model does from now on: the number of samples of each forward, and each backward."""
    events = []
    model.register_forward_pre_hook(lambda _, inputs: events.append(len(inputs[0])))
    model[-1].bias.register_hook(lambda _: events.append("backward"))
    return events


def _average(_, bucket):
    import torch.distributed as dist

    work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


@contextmanager
def _sent():
    """List the bytes of every tensor that this process gives to all-reduce from Python inside the block."""
    import torch.distributed as dist

    from helpers.measure.patching import replaced

    all_reduces, sizes = {name: vars(dist.ProcessGroup)[name] for name in ("allreduce", "allreduce_coalesced")}, []

    def listing(method):
        def call(group, tensors, *options):
            sizes.extend(tensor.nbytes for tensor in ([tensors] if hasattr(tensors, "nbytes") else tensors))
            return method(group, tensors, *options)

        return call

    with replaced([(dist.ProcessGroup, name, listing(method)) for name, method in all_reduces.items()]):
        yield sizes


def _run_weigh():
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP

    from helpers.measure.torch_parts import Future

    rank, n = dist.get_rank(), dist.get_world_size()
    findings = []
    cases = {
        "r + 1 samples on rank r": [other + 1 for other in range(n)],
        "3 samples on rank 0 and 1 on each other rank": [3, *[1] * (n - 1)],
    }
    for name, shares in cases.items():
        data = [new_data(other, share) for other, share in enumerate(shares)]
        runs = []

        def hook(samples, bucket, runs=runs):
            runs.append(call_answer("weigh", [samples, bucket]))
            if isinstance(runs[-1].result, Future):
                return runs[-1].result
            nothing = torch.futures.Future()
            nothing.set_result(bucket.buffer())
            return nothing

        model = DDP(new_model(), bucket_cap_mb=0.0001)
        model.register_comm_hook(shares[rank], hook)
        for _ in range(2):  # several buckets from the second step on
            model.zero_grad()
            try:
                loss(model, [data[rank]]).backward()
            except Exception as error:
                if "isPyObject" in str(error):
                    return Run(
                        None, [], "TypeError: the future of your hook holds no tensor, as that of `average` does"
                    )
                return Run(None, [], f"{type(error).__name__}: {error}")
            if failed := [run for run in runs if run.error]:
                return failed[0]
        whole = new_model()
        loss(whole, data).backward()
        calls = [
            dict(run.collectives) if isinstance(run.result, Future) else f"a {type(run.result).__name__}"
            for run in runs
        ]
        findings.append((name, calls, compare_gradients(model.module, whole)))
    return Run(findings, [], "")
