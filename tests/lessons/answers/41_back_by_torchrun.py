# %% World(4)
# A shorter timeout than the learner's: a deadlock takes as long.
# cell `init_process_group(` of solutions, with `seconds=10` as `seconds=4`

# %% my_loop: solution
# Solved. The loop saved every 25 steps on one rank, by a rename, and continued from the checkpoint.

# %% my_loop: skeleton
# Not yet. Without a checkpoint, rank 0 left checkpoints of the steps [] at `path`, expected [25, 50]: after every ...

# %% my_loop: pathlib
# Solved. The loop saved every 25 steps on one rank, by a rename, and continued from the checkpoint.
def my_loop(training, path, goes_on):
    from pathlib import Path
    if Path(path).is_file():
        training.load(torch.load(path))
    while goes_on(training):
        take_step(training)
        if not training.step % 25 and rank == 0:
            part = Path(path).with_suffix(".new")
            torch.save(training.state(), part)
            part.rename(path)

# %% my_loop: does not load
# Not yet. With a checkpoint of step 30, rank ... took the steps from 0 to 59, expected the steps from 30 to 59.
# solution, with `training.load(torch.load(path))` as `pass`

# %% my_loop: only rank 0 loads
# Not yet. With a checkpoint of step 30, rank 1 took the steps from 0 to 59, expected the steps from 30 to 59.
# solution, with `if os.path.exists(path):` as `if os.path.exists(path) and rank == 0:`

# %% my_loop: loads always
# Not yet. Rank 0 raised FileNotFoundError: ...
# solution, with `if os.path.exists(path):` as `if True:`

# %% my_loop: not atomic
# Not yet. Rank 0 wrote the second checkpoint into the file of the first, expected a new file that it renames: ...
# solution, with `torch.save(training.state(), f"{path}.part")` as `torch.save(training.state(), path)`,
# with `os.replace(f"{path}.part", path)` as `pass`

# %% my_loop: every rank saves
# Not yet. Rank 1 left checkpoints of the steps [25, 50], expected none: only rank 0 may save.
# solution, with `and rank == 0` as `and True`

# %% my_loop: saves every step
# Not yet. Without a checkpoint, rank 0 left checkpoints of the steps [1, 2, ...
# solution, with `training.step % 25 == 0` as `True`

# %% my_loop: saves before the step
# Not yet. Without a checkpoint, rank 0 left checkpoints of the steps [0, 25, 50] at `path`, expected [25, 50]: ...
def my_loop(training, path, goes_on):
    if os.path.exists(path):
        training.load(torch.load(path))
    while goes_on(training):
        if training.step % 25 == 0 and rank == 0:
            torch.save(training.state(), f"{path}.part")
            os.replace(f"{path}.part", path)
        take_step(training)

# %% my_loop: saves at the end
# Not yet. Without a checkpoint, rank 0 left checkpoints of the steps [60] at `path`, expected [25, 50]: after every ...
def my_loop(training, path, goes_on):
    if os.path.exists(path):
        training.load(torch.load(path))
    while goes_on(training):
        take_step(training)
    if rank == 0:
        torch.save(training.state(), f"{path}.part")
        os.replace(f"{path}.part", path)

# %% my_loop: one step
# Not yet. Without a checkpoint, rank 0 took the steps from 0 to 0, expected the steps from 0 to 59, as `goes_on` says.
# skeleton, with `while goes_on(training):` as `if goes_on(training):`

# %% my_loop: without an end
# Not yet. Rank 0 raised RuntimeError: the loop took more than 120 steps, and `goes_on` is false at 60
# skeleton, with `while goes_on(training):` as `while True:`

# %% my_loop: leaves the other file
# Not yet. Rank 0 left 2 files, ['checkpoint.pt', 'checkpoint.pt.part'], expected only the ...
def my_loop(training, path, goes_on):
    if os.path.exists(path):
        training.load(torch.load(path))
    while goes_on(training):
        take_step(training)
        if training.step % 25 == 0 and rank == 0:
            import shutil
            torch.save(training.state(), f"{path}.part")
            if os.path.exists(path):
                os.remove(path)
            shutil.copy(f"{path}.part", path)

# %% my_loop: removes the old checkpoint first
# Not yet. Rank 0 removed the first checkpoint before the second was at `path`, expected `os.replace`, which does both
# at once: otherwise a rank that is killed in between leaves no checkpoint.
# solution, with `os.replace(f"{path}.part", path)` as `os.path.exists(path) and os.remove(path); os.rename(f"{path}.part", path)`

# %% my_loop: a new file at the path
# Not yet. Rank 0 removed the first checkpoint before the second was at `path`, expected `os.replace`, which does both
# at once: otherwise a rank that is killed in between leaves no checkpoint.
def my_loop(training, path, goes_on):
    from pathlib import Path
    if os.path.exists(path):
        training.load(torch.load(path))
    while goes_on(training):
        take_step(training)
        if training.step % 25 == 0 and rank == 0:
            Path(path).unlink(missing_ok=True)
            torch.save(training.state(), path)

# %% my_loop: the first rank of each host saves
# Not yet. Rank 1 left checkpoints of the steps [25, 50], expected none: only rank 0 may save.
# solution, with `rank == 0` as `os.environ["LOCAL_RANK"] == "0"`

# %% my_loop: counts its own steps
# Not yet. With a checkpoint of step 30, the checkpoints at `path` on rank 0 were of the steps [30, 55], expected [30,
# 50].
def my_loop(training, path, goes_on):
    if os.path.exists(path):
        training.load(torch.load(path))
    taken = 0
    while goes_on(training):
        take_step(training)
        taken += 1
        if taken % 25 == 0 and rank == 0:
            torch.save(training.state(), f"{path}.part")
            os.replace(f"{path}.part", path)

# %% my_loop: loads in each step
# Not yet. Rank 0 raised RuntimeError: the loop took more than 120 steps, and `goes_on` is false at 60
def my_loop(training, path, goes_on):
    while goes_on(training):
        if os.path.exists(path):
            training.load(torch.load(path))
        take_step(training)
        if training.step % 25 == 0 and rank == 0:
            torch.save(training.state(), f"{path}.part")
            os.replace(f"{path}.part", path)

# %% my_loop: a fixed number of steps
# Not yet. Rank 0 raised RuntimeError: the loop took more than 120 steps, and `goes_on` is false at 60
# solution, with `while goes_on(training):` as `for _ in range(150):`

# %% my_loop: saves the training
# Not yet. Without a checkpoint, rank 0 left checkpoints of the steps [] at `path`, expected [25, 50]: after every
# 25th step.
# solution, with `torch.save(training.state()` as `torch.save({"step": training.step}`

# %% my_loop: with a barrier and a temporary file
# Solved. The loop saved every 25 steps on one rank, by a rename, and continued from the checkpoint.
def my_loop(training, path, goes_on):
    if os.access(path, os.R_OK):
        with open(path, "rb") as file:
            training.load(torch.load(file, weights_only=True))
    while True:
        if not goes_on(training):
            break
        take_step(training)
        if training.step // 25 * 25 == training.step:
            if int(os.environ["RANK"]) == 0:
                with open(path + "~", "wb") as file:
                    torch.save(training.state(), file)
                os.rename(path + "~", path)
            dist.barrier()

# %% my_loss: solution
# Solved. For every split of the batch, ...

# %% my_loss
# Solved. For every split of the batch, ...
# solution, with `return losses.sum() * n / batch` as `return (losses * (n / batch)).sum()`

# %% my_loss
# Solved. For every split of the batch, ...
# skeleton, with `losses.mean()` as `losses.mean() * len(losses) / batch * n if len(losses) else losses.sum()`

# %% my_loss
# Solved. For every split of the batch, ...
def my_loss(losses, batch, n):
    return torch.nn.functional.l1_loss(losses, torch.zeros_like(losses), reduction="sum") / (batch / n)

# %% my_loss: counted by an all-reduce
# Solved. For every split of the batch, ...
def my_loss(losses, batch, n):
    total = torch.tensor([float(losses.numel())], dtype=losses.dtype)
    dist.all_reduce(total)
    return losses.sum().mul(dist.get_world_size()).div(total)

# %% my_loss: the batch of an even split
# Not yet. With 17 examples, split as [5, 4, 4, 4], the gradient after DDP's average is 104.5000, expected 105.0000.
# solution, with `/ batch` as `/ (len(losses) * n)`

# %% my_loss: four ranks and sixteen examples
# Not yet. With 17 examples, split as [5, 4, 4, 4], the gradient after DDP's average is 111.5625, expected 105.0000.
# solution, with `losses.sum() * n / batch` as `losses.sum() / 4`

# %% my_loss: one for an empty slice
# Not yet. Rank 3 raised RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn
# skeleton, with `losses.mean()` as `losses.mean() if len(losses) else torch.zeros(1)`

# %% my_loss: detached
# Not yet. Rank 0 raised RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn
# solution, with `losses.sum()` as `losses.detach().sum()`

# %% my_loss: skeleton
# Not yet. With 17 examples, split as [5, 4, 4, 4], the gradient after DDP's average is 104.5000, expected 105.0000.

# %% my_loss
# Not yet. With 16 examples, split as [4, 4, 4, 4], the gradient after DDP's average is ...
# solution, with `return losses.sum() * n / batch` as `return losses.sum() / batch`

# %% my_loss
# Not yet. With 17 examples, split as [5, 4, 4, 4], the gradient after DDP's average is 111.5625, expected 105.0000.
# solution, with `return losses.sum() * n / batch` as `return losses.sum() / n`

# %% my_loss
# Not yet. With 16 examples, split as [4, 4, 4, 4], the gradient after ...
# solution, with `return losses.sum() * n / batch` as `return losses.mean() * len(losses) * batch / n`

# %% my_loss
# Not yet. With 16 examples, rank 0 returned 69.0, expected a tensor with one element.
# solution, with `return losses.sum() * n / batch` as `return losses.sum().item() * n / batch`

# %% my_loss
# Not yet. With 16 examples, rank 0 returned a tensor of shape [4], expected a tensor with one element.
# solution, with `return losses.sum() * n / batch` as `return losses * n / batch`

# %% best_interval: solution
# Solved. The interval is ...

# %% best_interval: skeleton
# Not yet. With 2 s for a checkpoint and 3600 s between failures, rank 0 returned 3600..., expected 120 s. Your interval
# loses 0.1% to checkpoints and 50.0% to failures.

# %% best_interval: by trying
# Solved. The interval is ...
def best_interval(save, between):
    return min(range(1, between), key=lambda interval: save / interval + interval / 2 / between)

# %% best_interval: without the half
# Not yet. With 2 s for a checkpoint and 3600 s between failures, rank 0 returned 84.8..., expected 120 s. ...
# solution, with `2 * save` as `save`

# %% best_interval: minutes
# Not yet. With 2 s for a checkpoint and 3600 s between failures, rank 0 returned 2.0, expected 120 s. ...
# solution, with `** 0.5` as `** 0.5 / 60`

# %% best_interval: without return
# Not yet. With 2 s for a checkpoint and 3600 s between failures, rank 0 returned None, expected 120 s.
def best_interval(save, between):
    interval = (2 * save * between) ** 0.5

# %% best_interval: for hours
# Not yet. With 30 s for a checkpoint and 10800 s between failures, rank 0 returned 464.758, expected 805 s. Your
# interval loses 6.5% to checkpoints and 2.2% to failures.
# solution, with `2 * save * between` as `2 * save * 3600`

# %% best_interval: Daly's formula without the half
# Not yet. With 2 s for a checkpoint and 3600 s between failures, rank 0 returned 60.0, expected 120 s. Your interval
# loses 3.3% to checkpoints and 0.8% to failures.
# solution, with `2 * save * between` as `save * between / 2`

# %% best_interval: the checkpoint added
# Not yet. With 2 s for a checkpoint and 3600 s between failures, rank 0 returned 122.0, expected 120 s. Your interval
# loses 1.6% to checkpoints and 1.7% to failures.
# solution, with `** 0.5` as `** 0.5 + save`

# %% best_interval: without a root
# Not yet. With 2 s for a checkpoint and 3600 s between failures, rank 0 returned 14400, expected 120 s. Your interval
# loses 0.0% to checkpoints and 200.0% to failures.
# solution, with `** 0.5` as ``

# %% best_interval: by logarithms
# Solved. The interval is ...
def best_interval(save, between):
    return torch.tensor([2.0, save, between]).log().sum().div(2).exp()
