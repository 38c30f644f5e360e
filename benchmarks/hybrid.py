"""The hybrid model of four ranks: the time of a step with sparse and with dense gradients, by the size of the table.

Both trainers step at the same time. The tables have 16 columns and the optimizer is SGD, as in the notebook. With the
largest number of rows, 64 columns and Adagrad, both usual for such tables, come beside that: there a dense gradient
costs more.
"""

from statistics import median

import ipyparallel as ipp

from benchmarks import lesson, side_by_side
from helpers import World

NOTEBOOK = "30_hybrid_costs.ipynb"
TURNS = 15
CASES = [
    (1000, 16, "SGD"),
    (10_000, 16, "SGD"),
    (100_000, 16, "SGD"),
    (1_000_000, 16, "SGD"),
    (1_000_000, 64, "SGD"),
    (1_000_000, 16, "Adagrad"),
]

# On the trainers: steps with every table in turn, both at once. On the master: the tables, and the start of both.
IMPORTS = "from torch.nn.parallel import DistributedDataParallel as DDP\n"
RUNS = """
def timed(*run):
    step(*run)  # once without the watch, for the memory and the caches
    dist.barrier()
    begin = time.perf_counter()
    step(*run)
    dist.barrier()
    return time.perf_counter() - begin

def steps(tables, passages, repeats):
    runs = {}
    for (rows, columns, optimizer, kind), table in tables.items():
        model = HybridModel(table, None, "cpu")
        model.dense = DDP(nn.Linear(columns, 6))
        kind_of_optimizer = getattr(torch.optim, optimizer)
        data = hashed(range(rank, passages, 2), rows)
        runs[rows, columns, optimizer, kind] = model, new_optimizer(references(model), kind_of_optimizer, 0.1), data
    times = [[timed(*run) for run in runs.values()] for _ in range(repeats + 1)]
    return dict(zip(runs, zip(*times[1:])))

def both(cases, passages, repeats):
    tables = {
        (rows, columns, optimizer, kind): RemoteModule("server/cpu", Table, (rows, columns, kind == "sparse"))
        for rows, columns, optimizer in cases
        for kind in ("sparse", "dense")
    }
    arguments = tables, passages, repeats
    calls = [rpc.rpc_async(f"trainer{t}", steps, arguments, timeout=120) for t in range(2)]
    return torch.futures.wait_all(calls)[0]
"""


def rows() -> list[list]:
    """Measure, and return the rows of the table."""
    world = World(4)
    try:
        world.view.execute(f"import sys; sys.path.append({str(lesson.NOTEBOOKS)!r})")  # hybrid_model.py is there
        for source in lesson.beginning(NOTEBOOK):
            world.view.execute(source)
        world.view.execute(IMPORTS + lesson.definitions(NOTEBOOK, "hashed") + RUNS)
        times = world.view.client[2].apply_async(ipp.Reference("both"), CASES, 64, TURNS).get()
    finally:
        world.stop()
    table = []
    for case in CASES:
        sparse, dense = (times[(*case, kind)] for kind in ("sparse", "dense"))
        what = "hybrid step, {:,} rows of {}, {}, dense".format(*case)
        table.append([what, _ms(dense), f"{_ms(sparse)}, sparse", f"{side_by_side.ratio(dense, sparse):.2f}"])
    least, most = (times[size, 16, "SGD", "sparse"] for size in (1000, 1_000_000))
    what = "hybrid step, 1,000,000 rows of 16, SGD, sparse"
    table.append([what, _ms(most), f"{_ms(least)}, 1,000 rows", f"{side_by_side.ratio(most, least):.2f}"])
    return table


def _ms(seconds):
    return f"{1e3 * median(seconds):.1f} ms"
