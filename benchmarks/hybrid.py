"""The hybrid model of four ranks: the time of a step with sparse and with dense gradients, by the size of the table.

Both trainers step at the same time, with SGD as in the notebook. Adagrad, usual for such tables, comes beside it for
the largest one: with dense gradients it goes through all rows more often.
"""

from statistics import median

import ipyparallel as ipp

from benchmarks import lesson, side_by_side
from helpers import World

NOTEBOOK = "20_hybrid_costs_and_failures.ipynb"
TURNS = 15
PAIRS = [(1000, "SGD"), (10_000, "SGD"), (100_000, "SGD"), (1_000_000, "SGD"), (1_000_000, "Adagrad")]
DEFINITIONS = ["Table", "HybridModel", "references", "batch", "new_optimizer", "step"]

# On the trainers: steps with every table in turn, both at once. On the master: the tables, and the start of both.
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
    for (rows, optimizer, kind), table in tables.items():
        model = HybridModel(table)
        kind_of_optimizer = getattr(torch.optim, optimizer)
        data = batch(range(rank, passages, 2), rows)
        runs[rows, optimizer, kind] = model, new_optimizer(references(model), kind_of_optimizer, 0.1), *data
    times = [[timed(*run) for run in runs.values()] for _ in range(repeats + 1)]
    return dict(zip(runs, zip(*times[1:])))

def both(pairs, passages, repeats):
    tables = {
        (rows, optimizer, kind): RemoteModule("server/cpu", Table, (rows, 16, kind == "sparse"))
        for rows, optimizer in pairs
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
        source = lesson.setup(NOTEBOOK) + "\nbags, labels, _ = datasets.passages()\n"
        world.view.execute(source + lesson.definitions(NOTEBOOK, *DEFINITIONS) + RUNS)
        times = world.view.client[2].apply_async(ipp.Reference("both"), PAIRS, 64, TURNS).get()
    finally:
        world.stop()
    table = []
    for size, optimizer in PAIRS:
        sparse, dense = times[size, optimizer, "sparse"], times[size, optimizer, "dense"]
        what = f"hybrid step, {size:,} rows, {optimizer}, dense"
        table.append([what, _ms(dense), f"{_ms(sparse)}, sparse", f"{side_by_side.ratio(dense, sparse):.2f}"])
    least, most = (times[size, "SGD", "sparse"] for size in (1000, 1_000_000))
    what = "hybrid step, 1,000,000 rows, SGD, sparse"
    table.append([what, _ms(most), f"{_ms(least)}, 1,000 rows", f"{side_by_side.ratio(most, least):.2f}"])
    return table


def _ms(seconds):
    return f"{1e3 * median(seconds):.1f} ms"
