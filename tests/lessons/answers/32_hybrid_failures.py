# %% World(4)
import sys
from helpers.course import NOTEBOOKS

sys.path.append(str(NOTEBOOKS))
# cell `from hybrid_model import HybridModel`
# cell `job = SimpleNamespace(`
# cell `start(rpc_timeout`
# cell `def save_table(`

# %% my_save: solution
# Solved. The server wrote the table after all updates of the step, and `latest` was written last.

# %% my_save: an all-reduce as the barrier, the reference's owner
# Solved. The server wrote the table after all updates of the step, and `latest` was written last.
def my_save(model, number, group):
    dist.all_reduce(torch.zeros(1), group=group)
    if rank == dist.get_process_group_ranks(group)[0]:
        table = model.table.get_module_rref()
        writing = rpc.rpc_async(table.owner(), save_table, (table, number))
        write(f"dense-{number}", model.dense.module.state_dict())
        writing.wait()
        write("latest", number)

# %% my_save: skeleton
# Not yet. When 2 trainers called `my_save`, the server ran `save_table` 0 times, expected once: the first trainer of the
# group requests it.

# %% my_save: no barrier
# Not yet. When 2 trainers called `my_save`, the server saved the table after 1 of 2 updates of the step, expected ...
# solution, without `dist.barrier(group)`

# %% my_save: every trainer saves
# Not yet. When 2 trainers called `my_save`, the server ran `save_table` 2 times, expected once: the first trainer ...
# solution, with `if dist.get_rank(group) == 0:` as `if True:`

# %% my_save: does not wait for the server
# Not yet. When 2 trainers called `my_save`, ...before ...
# solution, with `rpc.rpc_sync(` as `rpc.rpc_async(`

# %% my_save: latest first
# Not yet. When 2 trainers called `my_save`, `latest` was written before table-1 and dense-1, expected it to be
# written last: ...
def my_save(model, number, group):
    dist.barrier(group)
    if dist.get_rank(group) == 0:
        write("latest", number)
        rpc.rpc_sync("server", save_table, (model.table.get_module_rref(), number))
        write(f"dense-{number}", model.dense.module.state_dict())

# %% my_save: every trainer writes latest
# Not yet. When 2 trainers called `my_save`, `latest` was written before table-1, expected it to be written last: ...
# solution, with `        write("latest", number)` as `    write("latest", number)`

# %% my_save: files written in place
# Not yet. When only trainer 1 called `my_save`, in a group of its own, `latest` was overwritten in place, expected a new
# file that is renamed to `latest`, so that no rank reads a half-written file: use `write`.
# solution, with `write("latest", number)` as `torch.save(number, f"{job.folder}/latest")`

# %% my_save: files renamed without `write`
# Solved. The server wrote the table after all updates of the step, and `latest` was written last.
# solution, with `write("latest", number)` as `torch.save(number, f"{job.folder}/new"); os.replace(f"{job.folder}/new",
# f"{job.folder}/latest")`

# %% my_save: rank 0
# Not yet. When only trainer 1 called `my_save`, in a group of its own, the server ran `save_table` 0 times, expected ...
# solution, with `dist.get_rank(group) == 0` as `rank == 0`

# %% my_save: the whole model of DDP
# Not yet. When 2 trainers called `my_save`, `dense-1` has wrong keys or values, expected the dense layer's state ...
# solution, with `model.dense.module.state_dict()` as `model.dense.state_dict()`

# %% my_save: no dense layer
# Not yet. When 2 trainers called `my_save` with the number 1, it did not write dense-1, expected the files table-1,
# dense-1 and latest.
# solution, without `write(f"dense-{number}", model.dense.module.state_dict())`

# %% my_save: the next number
# Not yet. When 2 trainers called `my_save`, `latest` holds 2, expected 1.
# solution, with `write("latest", number)` as `write("latest", number + 1)`

# %% my_save: the barrier of all trainers
# Not yet. When only trainer 1 called `my_save`, in a group of its own, the trainer waited for trainers outside its ...
# solution, with `dist.barrier(group)` as `dist.barrier()`

# %% my_save: an error
# Not yet. Rank 0 raised ZeroDivisionError ...
def my_save(model, number, group):
    1 / 0

# %% tidy: solution
# Solved. `tidy` deleted only files of checkpoints that are older than the latest complete checkpoint.

# %% tidy: a pattern
# Solved. `tidy` deleted only files of checkpoints that are older than the latest complete checkpoint.
import re
from pathlib import Path

def tidy(folder):
    latest = Path(folder) / "latest"
    last = torch.load(latest) if latest.exists() else 0
    for path in Path(folder).iterdir():
        name = re.match(r"(?:table|dense)-(\d+)", path.name)
        if name and int(name[1]) < last:
            path.unlink()

# %% tidy: skeleton
# Not yet. In a folder with log.txt, dense-10, table-10, dense-20, table-20, and 20 in `latest`, `tidy` deleted nothing,
# expected dense-10, table-10.

# %% tidy: all but the latest
# Not yet. In a folder with log.txt, dense-20, table-20, dense-30, and 20 in `latest`, `tidy` deleted dense-30,
# expected nothing.
# solution, with `< last` as `!= last`

# %% tidy: the latest, too
# Not yet. In a folder with log.txt, dense-10, table-10, dense-20, table-20, and 20 in `latest`, `tidy` deleted
# dense-10, dense-20, table-10, table-20, expected dense-10, table-10.
# solution, with `< last` as `<= last`

# %% tidy: numbers as texts
# Not yet. In a folder with log.txt, dense-90, table-90, dense-100, table-100, table-110, and 100 in `latest`, `tidy`
# deleted nothing, expected dense-90, table-90.
# solution, with `int(number) < last` as `number < str(last)`

# %% tidy: only whole files
# Not yet. In a folder with log.txt, dense-20, table-20, table-10.by-server, table-30.by-server, and 20 in `latest`,
# `tidy` deleted nothing, expected table-10.by-server.
# solution, with `file.partition(".")[0].partition("-")` as `file.partition("-")` and `int(number)` as
# `number.isdigit() and int(number)`

# %% tidy: only one part
# Not yet. In a folder with log.txt, dense-10, table-10, dense-20, table-20, and 20 in `latest`, `tidy` deleted
# table-10, expected dense-10, table-10.
# solution, with `("table", "dense")` as `("table",)`

# %% tidy: without latest
# Not yet. Rank 0 raised FileNotFoundError...
# solution, with `if not os.path.exists(f"{folder}/latest"):` as `if False:`

# %% tidy: by the number alone
# Not yet. In a folder with log.txt, dense-10, table-10, dense-20, table-20, losses-10, and 20 in `latest`, `tidy` deleted
# dense-10, losses-10, table-10, expected dense-10, table-10.
# solution, with `part in ("table", "dense")` as `number`

# %% tidy: every file
# Not yet. In a folder with log.txt, dense-10, table-10, dense-20, table-20, and 20 in `latest`, `tidy` deleted ...
def tidy(folder):
    for file in os.listdir(folder):
        os.remove(f"{folder}/{file}")

# %% my_table_rate: solution
# Solved. A batch moves the table equally far with any number of trainers.

# %% my_table_rate: from its parts
# Solved. A batch moves the table equally far with any number of trainers.
def my_table_rate(members):
    return 0.5 / (members / trainers)

# %% my_table_rate: skeleton
# Not yet. With 1 of 2 trainers left, `my_table_rate` returned 0.5, so a batch moves the table 0.50 times as far as
# before, expected 1.00 times.

# %% my_table_rate: the wrong way round
# Not yet. With 1 of 2 trainers left, `my_table_rate` returned 0.25, so a batch moves the table 0.25 times as far ...
# solution, with `trainers / members` as `members / trainers`

# %% my_table_rate: in equal steps
# Not yet. With `trainers` = 6 and `members` = 5, `my_table_rate` returned 1.0, so a batch ...
# solution, with `0.5 * trainers / members` as `0.5 * (trainers - members + 1)`

# %% my_table_rate: for two trainers
# Not yet. With `trainers` = 6 and `members` = 6, `my_table_rate` returned 0.1667, so a batch ...
# solution, with `0.5 * trainers / members` as `1 / members`

# %% my_table_rate: for all trainers
# Not yet. With 2 of 2 trainers left, `my_table_rate` returned 1.0, so a batch moves the table 2.00 times as far ...
# solution, with `0.5 * trainers / members` as `0.5 * trainers`

# %% my_table_rate: without return
# Not yet. With 2 of 2 trainers left, `my_table_rate` returned None, expected a learning rate.
# solution, with `return ` as ``

# %% World(5): my_save, my_table_rate

# %% World(4)
# Nobody has started RPC.

# %% my_save: before RPC has been started
# Not yet. ... RPC has not been initialized ...
pass
