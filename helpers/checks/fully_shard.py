"""Exercises of 44_fully_shard: rows of a rank, units, clipping over shards, a report, and a checkpoint."""

import shutil
import tempfile
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from helpers.checks.exam import AnswerError, answer, errors_of_answer, exercise, near, number, show
from helpers.checks.judging import TIMEOUT_ERROR
from helpers.measure.traffic import collectives

_ROWS = (8, 7, 10, 3, 1, 401)
_LAYERS = 3
_SECONDS_OF_A_GROUP = 2


@exercise
def my_slice(exam):
    """Check `my_slice(rows, n, rank)`: the rows of a parameter that `fully_shard` keeps on a rank.

    Each rank answers for all ranks, in worlds of 1 to 8 ranks and for parameters of 1 to 401 rows.
    """
    for n in (1, 2, 3, 4, 8):
        for rows in _ROWS:
            chunks = torch.arange(rows).chunk(n)
            for place in range(n):
                expected = chunks[place].tolist() if place < len(chunks) else []
                result = exam.call(rows, n, place)
                case = f"For `my_slice({rows}, {n}, {place})` rank {exam.rank} returned"
                returned = [number(row) for row in result] if isinstance(result, list | tuple) else [None]
                if exam.require(None not in returned, f"{case} {show(result)}, expected a range."):
                    exam.require(
                        returned == expected,
                        f"{case} {_in_words(returned)}, expected {_in_words(expected)}.",
                    )
    return "Every rank returned the rows of all ranks."


@exercise
def my_clip(exam):
    """Check `my_clip(parameters, most)`: gradients in shards, clipped by the norm over all shards.

    The check calls it twice, with half the norm and with twice the norm as the limit.
    """
    rank = exam.rank
    for factor in (0.5, 2.0):
        norm, local, clipped = exam.on_rank(_clipped, factor)
        expected = min(1.0, factor)
        if exam.require(
            clipped is not None, f"After `my_clip` a parameter of rank {rank} has no gradient, expected one."
        ):
            # A rank without a single row has nothing to clip.
            times = clipped / local if local else expected
            exam.require(
                abs(times - expected) <= 1e-6 * expected,
                f"With a norm of {norm:.4f} over all ranks, {local:.4f} on rank {rank}, and `most` = "
                f"{factor * norm:.4f}, the gradients of rank {rank} are {times:.4f} times what they were, expected "
                f"{expected:.4f} times.",
            )
    return "All ranks clip their gradients by the norm over all shards."


@exercise
def my_sharded(exam):
    """Check `my_sharded(model, mesh)`: a unit for each layer, and an optimizer that takes the step of one process."""
    rank = exam.rank
    found = SimpleNamespace(**exam.on_rank(_trained_shards))
    exam.require(found.is_sharded, f"On rank {rank} a parameter is not a DTensor, expected shards of every parameter.")
    exam.require(
        found.is_in_mesh or not found.is_sharded,
        f"On rank {rank} a parameter is sharded over a different mesh, expected `mesh`: pass `mesh=mesh` to every "
        "`fully_shard`.",
    )
    exam.require(
        found.is_held,
        f"Rank {rank} returned {found.returned}, expected an optimizer of the parameters that the model has now. "
        "`fully_shard` replaces the parameters of a module.",
    )
    exam.require(
        found.gathers == _LAYERS,
        f"In a forward pass rank {rank} called {found.gathers} all_gather, expected {_LAYERS}, one for each layer.",
    )
    exam.require(
        found.gathers_of_step >= 2 * _LAYERS - 1,
        f"In a step rank {rank} called {found.gathers_of_step} all_gather, expected {2 * _LAYERS}, two for each layer: "
        "each layer stayed whole after its forward pass. Call `fully_shard` on the model, too, and leave "
        "`reshard_after_forward` as it is.",
    )
    exam.require(
        found.is_right,
        f"The units are right. After a step the parameters of rank {rank} differ from those of one process, expected "
        "a step of Adam with a learning rate of 0.01.",
    )
    return "Each layer is a unit, and a step on all ranks is the step of one process."


@exercise(own_group=True)
def my_report(exam):
    """Check `my_report(model)`: rank 0 returns the norms of the whole parameters, and no rank waits in vain."""
    rank = exam.rank
    result, waits, expected = exam.on_rank(_report)
    exam.require(
        not waits,
        f"Rank {rank} waited {_SECONDS_OF_A_GROUP} s in a collective that the other ranks did not call, expected no "
        "wait: `full_tensor()` is a collective.",
    )
    if rank > 0:
        exam.require(result is None, f"Rank {rank} returned {show(result)}, expected None: only rank 0 reports.")
    elif exam.require(
        isinstance(result, dict) and set(result) == set(expected),
        f"Rank 0 returned {show(result)}, expected a dict with the names of the parameters: {', '.join(expected)}.",
    ):
        for name, norm in expected.items():
            exam.require(
                near(result[name], norm),
                f"Rank 0 returned {show(result[name])} for `{name}`, expected {show(norm)}, the norm of the whole "
                "parameter.",
            )
    return "Rank 0 returned the norm of every parameter, and no rank waited for another in vain."


@exercise(also=["my_load"])
def my_save(exam):
    """Check `my_save(model, optimizer, folder)` and `my_load`: a training resumes on half as many shards.

    The model that is loaded has its shards on half of the ranks, and copies of them on the other half. An odd number of
    ranks has no halves, and keeps its shards.
    """
    rank = exam.rank
    found = SimpleNamespace(**exam.on_rank(_resumed))
    exam.require(
        found.is_written,
        "After `my_save` its folder is empty, expected the files of the checkpoint: write into `folder`.",
    )
    exam.require(
        found.is_loaded,
        f"After `my_load` the parameters of rank {rank} differ from the saved parameters, expected the same bits.",
    )
    exam.require(
        found.goes_on,
        f"The parameters are right. After one more step the parameters of rank {rank} differ from those of the saved "
        "training, expected the same parameters. Adam's next step depends on its state and its learning rate.",
    )
    return "Half as many shards have the parameters that were saved, and the next step is the same."


def _in_words(rows):
    return f"rows {rows[0]} to {rows[-1]}" if rows else "no rows"


def _clipped(factor):
    """Return the norm of the gradients over all ranks, and this rank's norm before and after `my_clip`.

    The norm after `my_clip` is None if a parameter has lost its gradient.
    """
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(9, 7), nn.Linear(7, 5)).double()
        inputs = torch.randn(4, 9, dtype=torch.float64)
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    model(inputs).square().sum().backward()
    local = _norm(model)
    squares = torch.tensor(local**2, dtype=torch.float64)
    dist.all_reduce(squares)
    norm = squares.sqrt().item()
    answer("my_clip", [list(model.parameters()), factor * norm])
    return norm, local, _norm(model)


def _norm(model):
    """Return the norm of this rank's gradients, or None if a gradient is missing."""
    gradients = [parameter.grad for parameter in model.parameters()]
    if any(gradient is None for gradient in gradients):
        return None
    return torch.cat([gradient.to_local().flatten() for gradient in gradients]).norm().item()


def _layers(seed=3):
    """Return a new model, the same on all ranks."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(*[nn.Linear(9, 9) for _ in range(_LAYERS)]).double()


def _train(model, optimizer, part=slice(None)):
    """Take a step on this part of the examples."""
    inputs = torch.arange(18.0 * dist.get_world_size(), dtype=torch.float64).sin().reshape(-1, 9)
    optimizer.zero_grad()
    model(inputs[part]).square().mean().backward()
    optimizer.step()


def flat_parameters(model):
    """Return all parameters of a model in one vector; every rank must call it."""
    parameters = (parameter.detach() for parameter in model.parameters())
    return torch.cat([(p.full_tensor() if isinstance(p, DTensor) else p).flatten() for p in parameters])


def _own_examples():
    return slice(dist.get_rank(), None, dist.get_world_size())


def _trained_shards():
    """Shard a model by `my_sharded`, and take a step; return facts about the model, the optimizer and the step."""
    whole, model = _layers(), _layers()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("of_the_check",))
    optimizer = answer("my_sharded", [model, mesh])
    parameters = list(model.parameters())
    groups = getattr(optimizer, "param_groups", [])
    held = {id(parameter) for group in groups for parameter in group["params"]}
    result = {
        "returned": type(optimizer).__name__,
        "is_sharded": all(isinstance(parameter, DTensor) for parameter in parameters),
        "is_in_mesh": all(getattr(parameter, "device_mesh", None) == mesh for parameter in parameters),
        "is_held": held == {id(parameter) for parameter in parameters},
        "gathers": 0,
        "gathers_of_step": 0,
        "is_right": False,
    }
    if result["is_sharded"] and result["is_held"]:
        _train(whole, torch.optim.Adam(whole.parameters(), lr=0.01))
        with errors_of_answer():
            with collectives() as calls:
                _train(model, optimizer, _own_examples())
            result["gathers_of_step"] = calls["all_gather"]
            with collectives() as calls, torch.no_grad():
                model(torch.ones(1, 9, dtype=torch.float64))
            result["gathers"] = calls["all_gather"]
            result["is_right"] = torch.allclose(flat_parameters(model), flat_parameters(whole), rtol=0, atol=1e-10)
    return result


def _report():
    """Return the result of `my_report`, whether it waited in vain, and the norms of the whole parameters."""
    group = dist.new_group(timeout=timedelta(seconds=_SECONDS_OF_A_GROUP))
    model = _layers()
    norms = {name: parameter.norm().item() for name, parameter in model.named_parameters()}
    # torch caches how it gathers by the names of a mesh, and would go on with the group of an equal mesh.
    fully_shard(model, mesh=DeviceMesh.from_group(group, "cpu", mesh_dim_names=(f"of_{group.group_name}",)))
    try:
        result = answer("my_report", [model])
    except AnswerError as error:
        if not TIMEOUT_ERROR.search(str(error)):
            raise
        return None, True, norms
    if isinstance(result, dict):
        result = {name: "a DTensor" if isinstance(norm, DTensor) else norm for name, norm in result.items()}
    return result, False, norms


def _resumed():
    """Train, save by `my_save`, and load by `my_load` into half as many shards; return whether the training goes on."""
    rank, n = dist.get_rank(), dist.get_world_size()
    folders = [tempfile.mkdtemp(prefix="checkpoint-") if rank == 0 else None]
    dist.broadcast_object_list(folders)
    line = init_device_mesh("cpu", (n,))
    hybrid = init_device_mesh("cpu", (2, n // 2), mesh_dim_names=("copies", "shards")) if n % 2 == 0 else line
    model, optimizer = _training(line, seed=3)
    optimizer.param_groups[0]["lr"] = 0.02  # not the rate with which the other optimizer is made
    for _ in range(2):
        _train(model, optimizer, _own_examples())
    answer("my_save", [model, optimizer, folders[0]])
    saved = flat_parameters(model)
    _train(model, optimizer, _own_examples())
    is_written = rank > 0 or any(Path(folders[0]).iterdir())

    resumed, its_optimizer = _training(hybrid, seed=4)
    answer("my_load", [resumed, its_optimizer, folders[0]])
    is_loaded = torch.equal(flat_parameters(resumed), saved)
    with errors_of_answer():
        _train(resumed, its_optimizer, _own_examples())
    goes_on = torch.allclose(flat_parameters(resumed), flat_parameters(model), rtol=0, atol=1e-10)
    if rank == 0:
        shutil.rmtree(folders[0], ignore_errors=True)
    return {"is_written": is_written, "is_loaded": is_loaded, "goes_on": goes_on}


def _training(mesh, seed):
    model = _layers(seed)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return model, torch.optim.Adam(model.parameters(), lr=0.01)
