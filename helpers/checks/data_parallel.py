"""Checks of what the learner writes in 08_data_parallel, and of its exercises."""

from helpers.checks.judging import Run, Verdict, Wrong, call_answer, judge
from helpers.checks.small_model import compare_gradients, loss, new_data, new_model

_IMAGES = 3


def mean_gradients(world) -> Verdict:
    """Check `my_synchronise(model)`, which turns the gradients of each rank into their mean over all ranks."""

    def check(runs):
        for rank, run in enumerate(runs):
            own, difference = run.result
            if own:
                raise Wrong(f"Rank {rank} still has the gradients of its own share.")
            if difference:
                raise Wrong(f"On rank {rank} {difference} the mean over all ranks.")
        return "Every rank holds the mean gradients of all ranks, which are those of one process."

    return judge(world, "my_synchronise", check, _run_mean_gradients)


def average_gradients(world) -> Verdict:
    """Check `average_gradients(model, images)`, which turns gradients of summed losses into that of the global mean."""

    def check(runs):
        for rank, run in enumerate(runs):
            even, uneven = run.result
            if even:
                raise Wrong(f"On rank {rank} {even} those of one process on all images.")
        for rank, run in enumerate(runs):
            even, uneven = run.result
            if uneven:
                raise Wrong(
                    f"With as many images on every rank it is right. With r + 1 images on rank r, on rank {rank} "
                    f"{uneven} those of one process on all images."
                )
        return "On every rank the gradients are those of one process, with equal shares and with unequal ones."

    return judge(world, "average_gradients", check, _run_average_gradients)


def average_what_is_there(world) -> Verdict:
    """Check `average_what_is_there(model)`: the mean over all ranks, where some parameters have no gradient.

    The first layer is frozen everywhere, and the last one has taken part on rank 0 only.
    """

    def check(runs):
        for rank, run in enumerate(runs):
            frozen, difference = run.result
            if frozen:
                raise Wrong(f"Rank {rank} gave a gradient to {frozen}, which is frozen.")
            if difference:
                raise Wrong(
                    f"With the last layer used on rank 0 only, on rank {rank} {difference} those of one process."
                )
        return "Every rank has the gradients of one process, and the frozen parameters have none."

    return judge(world, "average_what_is_there", check, _run_average_what_is_there)


def _run_mean_gradients():
    import torch
    import torch.distributed as dist

    rank, n = dist.get_rank(), dist.get_world_size()
    data = [new_data(other, _IMAGES) for other in range(n)]
    model, whole = new_model().double(), new_model().double()
    loss(model, [data[rank]]).backward()
    before = [parameter.grad.clone() for parameter in model.parameters()]
    run = call_answer("my_synchronise", [model])
    if run.error:
        return run
    loss(whole, data).backward()
    after = [parameter.grad for parameter in model.parameters()]
    own = all(new is not None and torch.equal(old, new) for old, new in zip(before, after, strict=True))
    return run._replace(result=(own, compare_gradients(model, whole, tolerance=1e-6)))


def _run_average_gradients():
    import torch.distributed as dist

    rank, n = dist.get_rank(), dist.get_world_size()
    findings = []
    for shares in ([_IMAGES] * n, [other + 1 for other in range(n)]):
        data = [new_data(other, number) for other, number in enumerate(shares)]
        model, whole = new_model().double(), new_model().double()
        loss(model, [data[rank]], "sum").backward()
        run = call_answer("average_gradients", [model, data[rank][0]])
        if run.error:
            return run
        loss(whole, data).backward()
        findings.append(compare_gradients(model, whole, tolerance=1e-6))
    return Run(findings, [], "")


def _run_average_what_is_there():
    import torch
    import torch.distributed as dist

    rank, n = dist.get_rank(), dist.get_world_size()
    data = [new_data(other, _IMAGES) for other in range(n)]
    model, whole = _frozen_model(), _frozen_model()
    _loss_of_some(model, data[rank], rank == 0).backward()
    run = call_answer("average_what_is_there", [model])
    if run.error:
        return run
    torch.stack([_loss_of_some(whole, data[other], other == 0) for other in range(n)]).mean().backward()
    frozen = [name for name, p in model.named_parameters() if not p.requires_grad and p.grad is not None]
    difference = compare_gradients(model[1:], whole[1:], tolerance=1e-6)  # without the frozen layer
    return run._replace(result=(frozen[0] if frozen else "", difference))


def _frozen_model():
    """Return the small network with a first layer that is frozen."""
    model = new_model().double()
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    return model


def _loss_of_some(model, data, use_last):
    """Return the loss of a network with its last layer, or of one that ends before it."""
    import torch

    inputs, labels = data
    hidden = model[:3](inputs.double())
    return torch.nn.functional.cross_entropy(model[4](model[3](hidden)) if use_last else hidden, labels)
