"""A step of ZeRO-3 by hand, as 43_sharded_data_parallel writes it, beside fully_shard's: the same model, in turn."""

from statistics import median

from benchmarks import lesson, side_by_side
from helpers import World

NOTEBOOK = "43_sharded_data_parallel.ipynb"
TURNS = 15
WIDTHS = (64, 512)
DEFINITIONS = [
    "exchange",
    "reduce_scatter",
    "all_gather",
    "Unit",
    "when_complete",
    "scatter_gradient",
    "free",
    "gather",
    "scatter_and_free",
    "zero3_of_the_lesson",
    "new_model",
    "adam",
    "backward",
    "step",
]
SETUP = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

SEED, layers = 0, 8

def prepare(chosen):
    global width, inputs, targets, by_hand, by_library
    width = chosen
    inputs, targets = torch.randn(2, 8 * n, width, dtype=torch.float64)
    by_hand = new_model()
    by_hand = by_hand, *zero3_of_the_lesson([Unit(layer) for layer in by_hand])
    model = new_model()
    for layer in [*model, model]:
        fully_shard(layer, mesh=mesh)
    optimizer = adam(model.parameters())
    by_library = model, optimizer, optimizer.step

mesh = init_device_mesh("cpu", (n,))
"""
CALLS = """
def hand():
    step(*by_hand)

def library():
    step(*by_library)
"""


def rows() -> list[list]:
    """Measure, and return the rows of the table."""
    table = []
    world = World(4, preload=["torch._dynamo", "torch.distributed.fsdp"])
    try:
        code = [lesson.setup(NOTEBOOK), lesson.definitions(NOTEBOOK, *DEFINITIONS), SETUP, CALLS, side_by_side.TIMED]
        world.view.execute("\n".join(code))
        for width in WIDTHS:
            world.view.execute(f"prepare({width})")
            hand, library = side_by_side.seconds(world, [["hand"], ["library"]], TURNS)
            table.append(_row(width, hand, library))
    finally:
        world.stop()
    return table


def _row(width, hand, library):
    what = f"step of ZeRO-3 by hand, 4 ranks, 8 layers of {width} x {width}"
    compared = f"{1e3 * median(library):.1f} ms, fully_shard"
    return [what, f"{1e3 * median(hand):.1f} ms", compared, f"{side_by_side.ratio(hand, library):.2f}"]
