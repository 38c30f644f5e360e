"""Checks of 31_sharded_data_parallel: of versions of a training step, by their weights, bytes held and bytes sent."""

from typing import NamedTuple

from helpers.checks.judging import Run, Verdict, Wrong, call_answer, judge

_LAYERS, _WIDTH, _SAMPLES, _STEPS = 6, 21, 2, 3
_RATE = 0.01
_STAGES = ("data parallel", "zero1", "zero2", "zero3")


class _Step(NamedTuple):
    """What a rank has seen of a step: `held` are pairs of a moment and the bytes of all tensors of the training.

    The differences from one process are the largest of its shards, and of the layers that it has whole.
    """

    held: list
    sent: int
    collectives: dict
    in_shards: float
    in_layers: float


class _Training(NamedTuple):
    """The sizes of a training, in bytes, and its steps: `state` is that of the optimizer, `layer` the largest layer."""

    whole: int
    layer: int
    state: int
    steps: list


def my_zero1(world) -> Verdict:
    """Check `my_zero1(units)`: each rank's optimizer has its shards only, and all ranks get all new parameters."""

    def check(runs):
        for rank, training in _trainings(runs):
            n = len(runs)
            _require_weights(rank, [max(step.in_shards, step.in_layers) for step in training.steps])
            if training.state > 2 * training.whole // n + training.layer // 2:
                raise Wrong(
                    f"The optimizer of rank {rank} keeps {training.state} bytes, "
                    f"and the target is {2 * training.whole // n}, twice its shards."
                )
            _require_traffic(rank, training, 2 * (n - 1) * training.whole // n)
        return "Each rank keeps the state of its shards, and all have the weights of one process."

    return judge(world, "my_zero1", check, _run_version, "my_zero1")


def my_zero3(world) -> Verdict:
    """Check `my_zero3(units)`: a rank keeps shards only, and has a layer whole while it computes it."""
    return _check_sharded(world, "my_zero3")


def thrifty(world) -> Verdict:
    """Check `thrifty(units)`, a version of ZeRO-3 that forgets to free, until the learner has mended it."""
    return _check_sharded(world, "thrifty")


def largest(world) -> Verdict:
    """Check `largest(memory, n, stage)`: the most parameters whose 16 bytes each, sharded, fit into the memory."""

    def check(runs):
        for rank, run in enumerate(runs):
            for memory, n, stage, answer, held, one_more in run.result:
                case = f"With {memory} bytes, {n} ranks and {stage}"
                if isinstance(answer, bool) or not isinstance(answer, int):
                    kind = type(answer).__name__
                    raise Wrong(f"{case} rank {rank} returned a {kind}, and the target is a whole number.")
                if held > memory:
                    raise Wrong(f"{case} the {answer} parameters of rank {rank} take {held} bytes.")
                if one_more <= memory:
                    raise Wrong(
                        f"{case} rank {rank} could have more than {answer} parameters: {answer + 1} take {one_more}."
                    )
        return "Each number fits, counted over tensors of that size, and one more parameter would not."

    return judge(world, "largest", check, _run_largest)


def _check_sharded(world, function):
    def check(runs):
        for rank, training in _trainings(runs):
            n = len(runs)
            _require_weights(rank, [step.in_shards for step in training.steps])
            _require_no_all_reduce(rank, training)  # gloo may still hold its tensor, so before the memory
            kept, layer = 4 * training.whole // n, training.layer
            for number, step in enumerate(training.steps):
                for moment, held in step.held:
                    # A layer that is fetched ahead, and a copy of the gradients, are allowed.
                    whole_layers = {"forward": 2, "backward": 4, "update": 0}[moment.split()[0]]
                    most = kept + whole_layers * layer
                    if held > most + layer // 2:
                        raise Wrong(
                            f"In step {number}, {_in_words(moment)}, rank {rank} holds {held} bytes. Its shards, their "
                            f"gradients and states take {kept}, a whole layer {layer}."
                        )
            _require_traffic(rank, training, 3 * (n - 1) * training.whole // n)
        return "Each rank keeps its shards only, and all train as one process does."

    return judge(world, function, check, _run_version, function)


def _in_words(moment):
    kind, _, number = moment.partition(" ")
    return "after the update" if kind == "update" else f"in the {kind} of layer {number}"


def _trainings(runs):
    """Yield each rank with its training; raises `Wrong` where there is none."""
    for rank, run in enumerate(runs):
        if isinstance(run.result, str):
            raise Wrong(f"Rank {rank}: {run.result}")
        yield rank, run.result


def _require_weights(rank, differences):
    for number, difference in enumerate(differences):
        if not difference < 1e-12:
            raise Wrong(
                f"After step {number} the parameters of rank {rank} differ from those of one process "
                f"by up to {difference:.2g}."
            )


def _require_no_all_reduce(rank, training):
    for number, step in enumerate(training.steps):
        if step.collectives.get("all_reduce"):
            raise Wrong(f"In step {number} rank {rank} called all_reduce: a shard of the sum is enough.")


def _require_traffic(rank, training, target):
    """Require that a step sends so many bytes from point to point, or what sends as many by collectives."""
    _require_no_all_reduce(rank, training)
    for number, step in enumerate(training.steps):
        if step.sent > target:
            raise Wrong(f"In step {number} rank {rank} sent {step.sent} bytes, and the target is {target}.")


def _run_version(function):
    import torch
    from torch.nn.functional import mse_loss

    import __main__
    from helpers.measure import tensors, traffic

    lesson = vars(__main__)
    if "Unit" not in lesson:
        return Run("there is no `Unit`: run the cells of the lesson down to this one.", [], "")
    rank, n = torch.distributed.get_rank(), torch.distributed.get_world_size()
    draw = torch.Generator().manual_seed(2)
    inputs, targets = torch.randn(2, _SAMPLES * n, _WIDTH, generator=draw, dtype=torch.float64)
    alone = _new_model()
    reference = torch.optim.Adam(alone.parameters(), lr=_RATE)
    before = tensors.alive()
    model = _new_model()
    units = [lesson["Unit"](layer) for layer in model]
    held = []
    _observe(units, lambda moment: held.append((moment, tensors.alive() - before)))
    run = call_answer(function, [units])
    if run.error:
        return run
    if not isinstance(run.result, tuple) or len(run.result) != 2 or not callable(run.result[1]):
        return Run(f"{function} returned a {type(run.result).__name__}, not an optimizer and a function.", [], "")
    optimizer, update = run.result
    steps = []
    try:
        for _ in range(_STEPS):
            held.clear()
            optimizer.zero_grad()
            reference.zero_grad()
            mse_loss(alone(inputs), targets).backward()
            reference.step()
            reference.zero_grad()
            before += tensors.nbytes(_state(reference)) * (not steps)  # it is made in the first step
            with traffic.recorded() as messages, traffic.collectives() as collectives:
                mse_loss(model(inputs[rank::n]), targets[rank::n]).backward()
                update()
            held.append(("update", tensors.alive() - before))
            sent = sum(message.bytes for message in messages if message.sent)
            steps.append(_Step(list(held), sent, dict(collectives), *_differences(units, alone, rank)))
    except Exception as error:
        return run._replace(result=None, error=f"{type(error).__name__}: {error}")
    sizes = [unit.full.nbytes for unit in units]
    state = tensors.nbytes(_state(optimizer))
    return Run(_Training(sum(sizes), max(sizes), state, steps), [], "")


def _new_model():
    """Return the same layers at every call and on every rank."""
    import torch
    from torch import nn

    with torch.random.fork_rng():
        torch.manual_seed(1)
        layers = [nn.Sequential(nn.Linear(_WIDTH, _WIDTH), nn.Tanh()) for _ in range(_LAYERS)]
        return nn.Sequential(*layers).double()


def _observe(units, note):
    """Call `note` with the name of the moment when a layer has done its forward, and when its gradients are there."""
    for number, unit in enumerate(units):
        parameters = list(unit.layer.parameters())

        def backward(_, number=number, parameters=parameters):
            if all(parameter.grad is not None for parameter in parameters):
                note(f"backward {number}")

        unit.layer.register_forward_hook(lambda *_, number=number: note(f"forward {number}"))
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(backward)


def _state(optimizer):
    import torch

    return [v for state in optimizer.state.values() for v in state.values() if isinstance(v, torch.Tensor)]


def _differences(units, alone, rank):
    """Return by how much this rank's shards, and the layers that it has whole, differ from those of one process."""
    import torch

    shards, layers = [], []
    for unit, layer in zip(units, alone, strict=True):
        flat = torch.cat([parameter.detach().flatten() for parameter in layer.parameters()])
        first = rank * len(unit.shard)
        true_shard = flat[first : first + len(unit.shard)]
        shards.append((unit.shard[: len(true_shard)], true_shard))  # the padding may hold anything
        if unit.full.untyped_storage().nbytes():
            layers += zip(unit.layer.parameters(), layer.parameters(), strict=True)
    return [max([(mine - true).abs().max().item() for mine, true in pairs], default=0.0) for pairs in (shards, layers)]


def _run_largest():
    import math

    from helpers.measure import tensors

    results = []
    for memory, n in ((1600, 4), (1000, 3), (999, 4), (4096, 8), (777, 1), (12345, 5)):
        for stage in _STAGES:
            run = call_answer("largest", [memory, n, stage])
            if run.error:
                return run
            answer = run.result
            known = isinstance(answer, int) and 0 <= answer <= 10 * n * memory
            sizes = [tensors.nbytes(_mixed(answer + more, n, stage)) if known else math.nan for more in (0, 1)]
            results.append((memory, n, stage, answer, *sizes))
    return Run(results, [], "")


def _mixed(parameters, n, stage):
    """Return tensors as a rank holds them at the end of backward: in bfloat16, those of the optimizer in float32."""
    import torch

    shard = -(-parameters // n)
    sharded = _STAGES.index(stage)
    lengths = [shard if sharded >= 3 else parameters, shard if sharded >= 2 else parameters]
    low = [torch.zeros(length, dtype=torch.bfloat16) for length in lengths]
    return low + [torch.zeros(shard if sharded else parameters) for _ in ("copy", "mean", "mean of squares")]
