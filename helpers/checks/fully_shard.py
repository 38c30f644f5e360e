"""Checks of 32_fully_shard: which rows a rank has, gradients clipped over shards, and layers grouped into units."""

from helpers.checks.judging import Run, Verdict, Wrong, call_answer, judge

_ROWS = (8, 7, 10, 3, 1, 401)


def my_slice(world) -> Verdict:
    """Check `my_slice(rows, n, rank)`: the rows of a parameter that `fully_shard` leaves on a rank."""

    def check(runs):
        for rank, run in enumerate(runs):
            for rows, n, place, answer, true in run.result:
                case = f"Of {rows} rows on {n} ranks rank {place}"
                if not isinstance(answer, list):
                    raise Wrong(f"{case} got a {answer} from rank {rank}, and the target is a range.")
                if answer != true:
                    raise Wrong(f"{case} has {_rows(true)}, and rank {rank} returned {_rows(answer)}.")
        return "Every rank knows its rows, and those of all others."

    return judge(world, "my_slice", check, _run_slices)


def my_clip(world) -> Verdict:
    """Check `my_clip(parameters, most)`: gradients in shards, clipped by the norm over all shards."""

    def check(runs):
        for rank, run in enumerate(runs):
            for most, norm, local, before, after in run.result:
                target = before * min(1.0, most / norm)
                if abs(after - target) > 1e-6 * target:
                    raise Wrong(
                        f"With a norm of {norm:.4f} over all ranks, {local:.4f} on rank {rank}, at most {most:.4f}, "
                        f"the gradients of rank {rank} are {after / before:.4f} times what they were, and the target "
                        f"is {target / before:.4f} times."
                    )
        return "The gradients of all ranks are clipped by one norm, that of all shards."

    return judge(world, "my_clip", check, _run_clipped)


def grouped(world) -> Verdict:
    """Check `grouped(sizes, limit)`: neighbours in as few units as possible, none of which is larger than the limit."""

    def check(runs):
        for rank, run in enumerate(runs):
            for sizes, limit, answer, fewest in run.result:
                case = f"With layers of {sizes} bytes and a limit of {limit} rank {rank}"
                if not isinstance(answer, list):
                    raise Wrong(f"{case} returned a {answer}, and the target is a list of lists of numbers.")
                if sum(answer, []) != list(range(len(sizes))) or [] in answer:
                    raise Wrong(f"{case} returned {answer}: each layer belongs to one unit, in their order.")
                for unit in answer:
                    held = sum(sizes[layer] for layer in unit)
                    if held > limit:
                        raise Wrong(f"{case} has a unit {unit} of {held} bytes.")
                if len(answer) > fewest:
                    raise Wrong(f"{case} has {len(answer)} units, and {fewest} are enough.")
        return "As few units as possible, and none is larger than the limit."

    return judge(world, "grouped", check, _run_grouped)


def _rows(rows):
    return f"rows {rows[0]} to {rows[-1]}" if rows else "no rows"


def _run_slices():
    import torch

    results = []
    for n in (1, 2, 3, 4, 8):
        for rows in _ROWS:
            chunks = list(torch.arange(rows).chunk(n))
            for place in range(n):
                run = call_answer("my_slice", [rows, n, place])
                if run.error:
                    return run
                answer = list(run.result) if isinstance(run.result, range | list | tuple) else type(run.result).__name__
                true = chunks[place].tolist() if place < len(chunks) else []
                results.append((rows, n, place, answer, true))
    return Run(results, [], "")


def _run_clipped():
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    results = []
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for factor in (0.5, 2.0):  # of the norm, so that the first clips and the second does not
        with torch.random.fork_rng():
            torch.manual_seed(3)
            model = nn.Sequential(nn.Linear(9, 7), nn.Linear(7, 5)).double()
            inputs = torch.randn(4, 9, dtype=torch.float64)
        fully_shard(model, mesh=mesh)
        model(inputs).square().sum().backward()
        local = _norm(model)
        squares = torch.tensor(local**2, dtype=torch.float64)
        dist.all_reduce(squares)
        norm = squares.sqrt().item()
        run = call_answer("my_clip", [list(model.parameters()), factor * norm])
        if run.error:
            return run
        # A rank without a single row has nothing to clip.
        results.append((factor * norm, norm, local, local or 1.0, _norm(model) if local else min(1.0, factor)))
    return Run(results, [], "")


def _norm(model):
    """Return the norm of the gradients that this rank has."""
    import torch

    return torch.cat([parameter.grad.to_local().flatten() for parameter in model.parameters()]).norm().item()


def _run_grouped():
    results = []
    for sizes, limit in (([4, 4, 4, 4], 8), ([4, 4, 4, 4], 4), ([6, 3, 3, 6, 2], 9), ([5, 1, 5, 1, 5], 6), ([7], 100)):
        run = call_answer("grouped", [list(sizes), limit])
        if run.error:
            return run
        try:
            answer = [list(unit) for unit in run.result]
        except TypeError:
            answer = type(run.result).__name__
        results.append((sizes, limit, answer, _fewest(sizes, limit)))
    return Run(results, [], "")


def _fewest(sizes, limit):
    units, held = 0, limit + 1
    for size in sizes:
        if held + size > limit:
            units, held = units + 1, 0
        held += size
    return units
