"""Checks of what the learner writes in 13_ddp_in_practice, and of its exercises."""

from contextlib import contextmanager
from datetime import timedelta

from helpers.checks.judging import CUT_OFF, Run, Verdict, Wrong, call_answer, judge

_FEATURES, _CLASSES = 4, 2


def my_same(world) -> Verdict:
    """Check `my_same(tensor)`: on every rank whether the tensor is the same on all ranks, by a few numbers."""
    cases = {
        "all ranks hold the same": True,
        "one bit has changed on the last rank": False,
        "two numbers have swapped places on rank 1": False,
        "one bit has changed on rank 0": False,
        "each rank holds something else": False,
    }

    def check(runs):
        for number, (case, target) in enumerate(cases.items()):
            for rank, run in enumerate(runs):
                result, sent = run.result[number]
                if sent:
                    raise Wrong(f"Rank {rank} handed over {sent} bytes: that is the tensor.")
                if result is not target:
                    raise Wrong(f"When {case}, rank {rank} returned {result}, and the target is {target}.")
        return "Every rank knows whether all hold the same, and only a few numbers were sent."

    return judge(world, "my_same", check, _run_same_everywhere)


def forward(world) -> Verdict:
    """Check `forward(self, x)` of a model with a branch: same outputs and gradients, under DDP with no option."""

    def check(runs):
        for rank, run in enumerate(runs):
            alone, together = run.result
            if alone:
                raise Wrong(f"On rank {rank} {alone}")
        for rank, run in enumerate(runs):
            error = run.result[1]
            if error and not CUT_OFF.search(error):
                raise Wrong(f"With a dark batch on rank 0 and bright ones elsewhere, on rank {rank} {error}")
        for rank, run in enumerate(runs):
            if run.result[1]:
                raise Wrong(f"Under DDP, rank {rank} waited in vain for a gradient of another rank.")
        return "Outputs and gradients are the same, and every parameter takes part on every rank."

    return judge(world, "forward", check, _run_gated, group_of_its_own=True)


def accuracy(world) -> Verdict:
    """Check `accuracy(model, data)`: on every rank the exact share of right answers, each image evaluated once."""

    def check(runs):
        for images, share in ((4 * world.size, "an even"), (4 * world.size + 1, "an uneven")):
            number, most = f"With {share} number of images, {images},", -(-images // world.size)
            for rank, run in enumerate(runs):
                result, seen, _ = run.result[images]
                if not isinstance(result, int | float):
                    raise Wrong(f"Rank {rank} returned a {type(result).__name__}, and the target is a number.")
                if seen > most:
                    raise Wrong(f"{number} rank {rank} evaluated {seen} of them, and its share is {most}.")
            for rank, run in enumerate(runs):
                result, _, target = run.result[images]
                if abs(result - target) > 1e-6:
                    raise Wrong(f"{number} rank {rank} returned {result:.4f}, and the target is {target:.4f}.")
            seen = sum(run.result[images][1] for run in runs)
            if seen < images:
                raise Wrong(f"{number} the ranks evaluated only {seen} of them.")
        return "Every rank returned the exact share, and evaluated no more than its own images."

    return judge(world, "accuracy", check, _run_accuracy)


def out_of_step(world) -> Verdict:
    """Check `out_of_step(model)`: on every rank the list of the ranks whose weights are not those of rank 0."""
    n = world.size
    cases = {
        "no rank has changed": [],
        "one bit has changed on the last rank": [n - 1],
        "two weights have swapped places on rank 1": [1],
        "a bit has changed on rank 0": list(range(1, n)),
        "the last bit of all has changed on the last rank": [n - 1],
    }

    def check(runs):
        for number, (case, target) in enumerate(cases.items()):
            for rank, run in enumerate(runs):
                result, sent, hashed = run.result[number]
                if sent:
                    raise Wrong(f"Rank {rank} handed over {sent} bytes to be sent: those are its weights.")
                if result != target:
                    about_hash = " (`hash` of text and bytes is another number in each process that starts by itself.)"
                    raise Wrong(
                        f"When {case}, rank {rank} returned {result}, and the target is {target}.{about_hash * hashed}"
                    )
        return "Every rank names the ranks that have drifted, and no weights were sent."

    return judge(world, "out_of_step", check, _run_out_of_step)


def _run_same_everywhere():
    import torch
    import torch.distributed as dist

    rank, n, results = dist.get_rank(), dist.get_world_size(), []
    for changed, how in ((None, ""), (n - 1, "bit"), (1, "swap"), (0, "bit"), (rank, "own")):
        tensor = torch.arange(1.0, 257.0)
        if rank == changed and how == "bit":
            tensor[3].nextafter_(torch.tensor(9.0))
        elif rank == changed and how == "swap":
            tensor[:2] = torch.tensor([2.0, 1.0])
        elif how == "own":
            tensor += rank
        with handed_over() as sizes:
            run = call_answer("my_same", [tensor])
        if run.error:
            return run
        result = run.result.item() if hasattr(run.result, "item") else run.result
        result = bool(result) if result in (0, 1) else result
        results.append((result, sum(sizes) * (sum(sizes) >= tensor.nbytes / 2)))
    return Run(results, [], "")


def _run_gated():
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import __main__
    from helpers.measure.torch_parts import load_dynamo

    load_dynamo()
    rank = dist.get_rank()
    dist.barrier()
    # For those who wait in vain; a right answer has time enough on a busy machine, too.
    brief = dist.new_group(timeout=timedelta(seconds=8))
    dark, bright = torch.full((3, _FEATURES), 0.1), torch.full((3, _FEATURES), 0.9)
    model, original = _model(lambda layers, images: vars(__main__)["forward"](layers, images)), _model(_forward)
    both = torch.cat([dark[:1], bright])  # bright in the mean
    for name, images in (
        ("dark images", dark),
        ("bright images", bright),
        ("dark and bright images in one batch", both),
    ):
        with torch.no_grad():
            run = call_answer("forward", [model, images])
            if run.error:
                return run
            if not isinstance(run.result, torch.Tensor) or not torch.allclose(run.result, original(images)):
                return Run((f"the output for {name} is not that of the exercise.", ""), [], "")
    try:
        wrapped = DistributedDataParallel(model, process_group=brief)
        for _ in range(2):
            wrapped(bright if rank else dark).sum().backward()
    except RuntimeError as error:
        unused = "finished reduction" in str(error)
        return Run(("", "a parameter had no part in the loss." if unused else str(error)), [], "")
    n = dist.get_world_size()
    for other in range(n):  # two steps, and their mean over the ranks
        (2 / n * original(bright if other else dark).sum()).backward()
    for (name, mine), true in zip(model.named_parameters(), original.parameters(), strict=True):
        if not torch.allclose(mine.grad, true.grad, rtol=1e-3, atol=1e-5):
            return Run(("", f"the gradient of {name} is not the mean of what the ranks' batches give."), [], "")
    return Run(("", ""), [], "")


def _model(forward):
    """Return a model with the layers of the exercise, the same at every call and on every rank."""
    import torch
    from torch import nn

    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = type("Gated", (nn.Module,), {"forward": forward})()
        model.body, model.extra = nn.Linear(_FEATURES, _FEATURES), nn.Linear(_FEATURES, _FEATURES)
        return model


def _forward(self, x):
    """Compute what the exercise computes on one device."""
    hidden = self.body(x)
    return self.extra(hidden) if x.mean() > 0.5 else hidden


def _run_accuracy():
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.utils.data import TensorDataset

    class Counting(nn.Module):
        """Answers what the only feature of an image says, and counts the images."""

        seen = 0

        def forward(self, images):
            self.seen += len(images)
            return nn.functional.one_hot(images[:, 0].long(), _CLASSES).double()

    n, results = dist.get_world_size(), {}
    for images in (4 * n, 4 * n + 1):
        # The first half is right, so that an image that counts twice shows.
        right = torch.arange(images) < images // 2
        data = TensorDataset(right.double()[:, None], torch.ones(images, dtype=torch.long))
        model = Counting()
        run = call_answer("accuracy", [model, data])
        if run.error:
            return run
        result = run.result.item() if isinstance(run.result, torch.Tensor) and run.result.numel() == 1 else run.result
        results[images] = result, model.seen, (images // 2) / images
    return Run(results, [], "")


def _run_out_of_step():
    import torch
    import torch.distributed as dist
    from torch import nn

    rank, n, results = dist.get_rank(), dist.get_world_size(), []
    for changed, how in ((None, ""), (n - 1, "first"), (1, "swap"), (0, "first"), (n - 1, "last")):
        with torch.random.fork_rng():
            torch.manual_seed(1)
            model = nn.Sequential(nn.Linear(_FEATURES, 64), nn.ReLU(), nn.Linear(64, _CLASSES))
        weights = model[0].weight.data
        if rank == changed and how == "swap":
            weights[0, 0], weights[1, 1] = weights[1, 1].item(), weights[0, 0].item()
        elif rank == changed:
            (weights[0, 0] if how == "first" else model[2].bias.data[-1]).nextafter_(torch.tensor(2.0))
        with handed_over() as sizes, _hash_of_its_own() as hashed:
            run = call_answer("out_of_step", [model])
        if run.error:
            return run
        size = sum(parameter.nbytes for parameter in model.parameters())
        result = run.result.tolist() if isinstance(run.result, torch.Tensor) else run.result
        result = list(result) if isinstance(result, list | tuple | set) else result
        results.append((result, sum(sizes) if sum(sizes) >= size / 4 else 0, bool(hashed)))
    return Run(results, [], "")


@contextmanager
def _hash_of_its_own():
    """Give cells the `hash` that ranks would have under torchrun; list the text and bytes that it has been given.

    Python salts it for each process, but ranks that are forked share the salt.
    """
    import builtins
    import os

    import __main__

    hashed = []

    def salted(value):
        if not isinstance(value, str | bytes):
            return builtins.hash(value)
        hashed.append(value)
        return builtins.hash((os.getpid(), value))

    __main__.hash = salted
    try:
        yield hashed
    finally:
        del __main__.hash


# Methods by which torch hands tensors over, and which of their arguments holds what is sent.
_SENDING = {
    **dict.fromkeys(["allreduce", "allreduce_coalesced", "broadcast", "reduce", "send"], 0),
    **dict.fromkeys(["allgather", "allgather_coalesced", "_allgather_base", "all_gather_single", "gather"], 1),
    **dict.fromkeys(["alltoall", "alltoall_base", "all_to_all_single", "scatter"], 1),
    **dict.fromkeys(["reduce_scatter", "_reduce_scatter_base", "reduce_scatter_single"], 1),
}


@contextmanager
def handed_over():
    """List the bytes of every tensor that this process hands over to be sent to other ranks."""
    import torch
    import torch.distributed as dist

    from helpers.measure.patching import replaced
    from helpers.measure.torch_parts import tree_leaves

    sizes = []

    def listing(method, place):
        def call(group, *arguments, **options):
            leaves = tree_leaves(arguments[place : place + 1])
            sizes.extend(leaf.nbytes for leaf in leaves if isinstance(leaf, torch.Tensor))
            return method(group, *arguments, **options)

        return call

    there = {name: vars(dist.ProcessGroup)[name] for name in _SENDING if name in vars(dist.ProcessGroup)}
    with replaced([(dist.ProcessGroup, name, listing(method, _SENDING[name])) for name, method in there.items()]):
        yield sizes
