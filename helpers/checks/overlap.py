"""Checks of what the learner writes in 09_overlap, and of its exercises."""

from contextlib import contextmanager

from helpers.checks.judging import RESTART, Run, Verdict, Wrong, call_answer, judge
from helpers.checks.small_model import loss, new_data, new_model

_IMAGES, _STEPS = 3, 3
_BUCKETS = "the bucket of the last layers", "the bucket of the first layer"


def my_hooks(world) -> Verdict:
    """Check `my_hooks(bucket, launch)`: its hooks launch a bucket once a step, as soon as it has all gradients.

    The model has two buckets, with hooks of their own.
    """

    def check(runs):
        for rank, run in enumerate(runs):
            for step, launches in enumerate(run.result, start=1):
                for bucket in _BUCKETS:
                    _require_launch(f"In step {step}, rank {rank}", bucket, launches)
        return "In each step, every rank launched each bucket once, as soon as all gradients were in the bucket."

    return judge(world, "my_hooks", check, _run_my_hooks)


def buckets_by_size(world) -> Verdict:
    """Check `buckets_by_size(parameters, limit)`: a bucket is full when it has reached the limit, as with DDP."""

    def check(runs):
        for rank, run in enumerate(runs):
            for limit, sizes, buckets in run.result:
                _require_buckets(rank, limit, sizes, buckets)
        return "Every rank has filled its buckets as DDP does, from the last parameter to the first."

    return judge(world, "buckets_by_size", check, _run_buckets_by_size)


def two_buckets(world) -> Verdict:
    """Check `two_buckets(model)`: a version with two buckets, of which the first travels while backward still runs.

    The first step may have other buckets, as that of DDP has. Which all-reduces a step makes is seen by the profiler,
    for those of DDP do not come from Python; what is sent and waited for only where they do.
    """

    def check(runs):
        for rank, run in enumerate(runs):
            if isinstance(run.result, str):
                raise Wrong(f"Rank {rank} returned {run.result}, and the target is a model and a function.")
            for number, (calls, made, size, right) in enumerate(run.result):
                if number > 0 or any(call == "all_reduce" for call, _ in calls):
                    _require_two_buckets(rank, calls, made, size)
                if not right:
                    raise Wrong(f"After step {number}, the weights of rank {rank} are not those of one process.")
        return "Every rank has the weights of one process, and its first bucket travelled while backward still ran."

    return judge(world, "two_buckets", check, _run_two_buckets)


def _require_launch(who, bucket, launches):
    """Require that a step has one launch of a bucket, with all of its gradients and before backward has ended."""
    of_bucket = [launch for launch in launches if launch[0] == bucket]
    if len(of_bucket) != 1:
        times = f"launched {bucket} {len(of_bucket)} times" if of_bucket else f"did not launch {bucket}"
        raise Wrong(f"{who} {times}, expected one launch in every step.")
    ((_, full, early),) = of_bucket
    if not full:
        raise Wrong(f"{who} launched {bucket} before all of its gradients were taken, expected a full bucket.")
    if bucket == _BUCKETS[0] and not early:
        raise Wrong(
            f"{who} launched {bucket} after backward had computed the gradients of the first layer, "
            "expected a launch as soon as the bucket is full."
        )


def _require_buckets(rank, limit, sizes, buckets):
    """Require the right buckets; they and `sizes` are given by the numbers of the parameters."""
    if not isinstance(buckets, list):
        raise Wrong(f"Rank {rank} returned {buckets}, and the target is a list of lists of parameters.")
    for number, bucket in enumerate(buckets):
        if not bucket:
            raise Wrong(f"Bucket {number} of rank {rank} is empty.")
        held = 0
        for parameter in bucket[:-1]:
            held += sizes[parameter]
            if held >= limit:
                raise Wrong(
                    f"Bucket {number} of rank {rank} goes on after it has reached {held} bytes, "
                    f"and the limit is {limit}."
                )
    shared_out = sum(buckets, [])
    for parameter in range(len(sizes)):
        if shared_out.count(parameter) != 1:
            times = f"{shared_out.count(parameter)} buckets"
            raise Wrong(f"On rank {rank} parameter {parameter} of {len(sizes)} is in {times}, and the target is 1.")
    if shared_out != sorted(shared_out, reverse=True):
        raise Wrong(f"The buckets of rank {rank} hold the parameters {buckets}, and the target is from last to first.")
    for number, bucket in enumerate(buckets[:-1]):
        held = sum(sizes[parameter] for parameter in bucket)
        if held < limit:
            raise Wrong(
                f"Bucket {number} of rank {rank} ends with {held} bytes, before it has reached the limit of {limit}."
            )


def _require_two_buckets(rank, calls, made, size):
    """Require that a step has made these calls, in their order, in the right way.

    `made` all-reduces were made in all, also by DDP, and `size` is that of all gradients.
    """
    sent = [size for call, size in calls if call == "all_reduce"]
    if made != 2:
        times = {0: "did not call all_reduce", 1: "called all_reduce once"}
        done = times.get(made, f"called all_reduce {made} times")
        raise Wrong(f"Rank {rank} {done} in a step, and the target is twice.")
    if not sent:  # DDP's, which launches in backward and waits at its end
        return
    if sum(sent) != size:
        raise Wrong(f"The buckets of rank {rank} hold {sum(sent)} bytes, and the gradients {size}.")
    names = [call for call, _ in calls]
    before_the_end = names[: names.index("last gradient")]
    if "all_reduce" not in before_the_end:
        raise Wrong(f"Rank {rank} launched its first bucket after backward had computed the last gradient.")
    if "wait" in names[: names.index("end of backward")]:
        raise Wrong(f"Rank {rank} waited for a bucket before backward had ended.")
    if names.count("wait") < 2:
        waited = "waited for only one of its buckets" if "wait" in names else "never waited for a bucket"
        raise Wrong(f"Rank {rank} {waited}. {RESTART}")


class _Bucket:
    """A bucket as the lesson has it, without a group: it is never sent."""

    def __init__(self, parameters, ranks):
        import torch

        sizes = [parameter.numel() for parameter in parameters]
        self.ranks = ranks
        self.flat = torch.zeros(sum(sizes))
        parts = self.flat.split(sizes)
        self.views = {parameter: part.view_as(parameter) for parameter, part in zip(parameters, parts, strict=True)}

    def take(self, parameter):
        self.views[parameter].copy_(parameter.grad / self.ranks)

    def full(self):
        pairs = self.views.items()
        return all(p.grad is not None and view.equal(p.grad / self.ranks) for p, view in pairs)


def _run_my_hooks():
    import torch.distributed as dist

    n = dist.get_world_size()
    model = new_model()
    first, last = list(model[0].parameters()), list(model[1:].parameters())
    buckets = [_Bucket(last, n), _Bucket(first, n)]
    steps = []

    def launch(bucket):
        if bucket not in buckets:
            raise TypeError(f"launch got a {type(bucket).__name__}, expected the bucket of `my_hooks`")
        early = all(parameter.grad is None for parameter in first)
        steps[-1].append((_BUCKETS[buckets.index(bucket)], bucket.full(), early))

    for bucket in buckets:
        run = call_answer("my_hooks", [bucket, launch])
        if run.error:
            return run
    try:
        for number in range(_STEPS):
            steps.append([])
            for bucket in buckets:
                bucket.flat.zero_()
            model.zero_grad()
            loss(model, [new_data(number * n + dist.get_rank(), _IMAGES)]).backward()
    except Exception as error:
        return Run(None, [], f"{type(error).__name__}: {error}")
    return Run(steps, [], "")


def _run_buckets_by_size():
    import torch
    from torch import nn

    results = []
    for type_, limit in ((torch.float32, 1200), (torch.float64, 1200), (torch.float32, 512), (torch.float32, 8)):
        parameters = [nn.Parameter(torch.zeros(size, dtype=type_)) for size in (32, 4, 300, 64, 64, 128, 16, 20, 4)]
        run = call_answer("buckets_by_size", [list(parameters), limit])
        if run.error:
            return run
        number = {parameter: place for place, parameter in enumerate(parameters)}
        try:
            buckets = [[number[parameter] for parameter in bucket] for bucket in run.result]
        except (TypeError, KeyError):
            buckets = f"a {type(run.result).__name__}"
        results.append((limit, [parameter.nbytes for parameter in parameters], buckets))
    return Run(results, [], "")


def _run_two_buckets():
    import torch
    import torch.distributed as dist

    from helpers.measure import timeline

    n = dist.get_world_size()
    model, whole = new_model().double(), new_model().double()
    calls = []
    # The first hook of a parameter is called first. Which of a layer's two gradients is the last is left open.
    model[0].weight.register_post_accumulate_grad_hook(lambda _: calls.append(("last gradient", 0)))
    run = call_answer("two_buckets", [model])
    if run.error:
        return run
    if not isinstance(run.result, tuple) or len(run.result) != 2 or not all(map(callable, run.result)):
        return Run(f"a {type(run.result).__name__}", [], "")
    called, update = run.result
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.1, momentum=0.9)
    steps = []
    try:
        for number in range(_STEPS):
            data = [new_data(number * n + rank, _IMAGES) for rank in range(n)]
            calls.clear()
            with timeline.recorded() as intervals, _recorded(calls):
                called.zero_grad()
                loss(called, [data[dist.get_rank()]]).backward()
                calls.append(("end of backward", 0))
                update()
            optimizer.zero_grad()
            loss(whole, data).backward()
            optimizer.step()
            pairs = zip(model.parameters(), whole.parameters(), strict=True)
            right = all(torch.allclose(mine, true, rtol=1e-6) for mine, true in pairs)
            made = sum(interval.name.endswith(":all_reduce") for interval in intervals)
            size = sum(parameter.nbytes for parameter in model.parameters())
            steps.append((list(calls), made, size, right))
    except Exception as error:
        return run._replace(result=None, error=f"{type(error).__name__}: {error}")
    return Run(steps, [], "")


@contextmanager
def _recorded(calls):
    """Append every all_reduce of this process, with its bytes, and every wait to `calls`."""
    import torch.distributed as dist

    all_reduce, wait = dist.ProcessGroup.allreduce, dist.Work.wait

    def recorded_all_reduce(group, tensors, *options):
        calls.append(("all_reduce", sum(tensor.nbytes for tensor in tensors)))
        return all_reduce(group, tensors, *options)

    def recorded_wait(work, *timeout):
        calls.append(("wait", 0))
        return wait(work, *timeout)

    dist.ProcessGroup.allreduce, dist.Work.wait = recorded_all_reduce, recorded_wait
    try:
        yield
    finally:
        dist.ProcessGroup.allreduce, dist.Work.wait = all_reduce, wait
