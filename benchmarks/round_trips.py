"""A call of RPC over TCP and back, beside a bare socket that sends as many bytes each way, between two ranks."""

from statistics import median

import ipyparallel as ipp

from benchmarks import lesson, side_by_side
from helpers import World

NOTEBOOK = "19_rpc_and_rref.ipynb"
DEFINITIONS = ["echo", "fastest", "call_with", "bounce", "bare"]
TURNS = 15
TENSORS = {"4 bytes": (4, 200), "1 MiB": (2**20, 40)}  # and how many calls make one measurement

SETUP = """
import os, socket, warnings
from timeit import timeit
import torch
import torch.distributed.rpc as rpc
from helpers.measure.traffic import loopback

warnings.filterwarnings("ignore", message="You are using a Backend")
rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=20, _transports=["uv"], _channels=["basic"])
rpc.init_rpc(f"worker{rank}", rank=rank, world_size=n, rpc_backend_options=options)

def bytes_each_way(size):
    call = call_with(echo, size)
    fastest({"to warm up": call}, 5)
    with loopback() as wire:
        fastest({"RPC": call}, 100)
    return wire.bytes // 200

def both(size, sent, times):
    return fastest({"RPC": call_with(echo, size)}, times)["RPC"], bare(sent, times)
"""


def rows() -> list[list]:
    """Measure, and return the rows of the table."""
    world = World(2)
    try:
        world.view.execute(SETUP + "\n" + lesson.definitions(NOTEBOOK, *DEFINITIONS))
        return [_row(world, what, size, times) for what, (size, times) in TENSORS.items()]
    finally:
        world.stop()


def _row(world, what, size, times):
    sent = _on_caller(world, "bytes_each_way", size)
    calls, bare = zip(*(_on_caller(world, "both", size, sent, times) for _ in range(TURNS)), strict=True)
    compared = f"{median(bare) * 1e6:.0f} µs, socket with {sent:,} bytes each way"
    ratio = side_by_side.ratio(calls, bare)
    return [f"RPC round trip, {what}", f"{median(calls) * 1e6:.0f} µs", compared, f"{ratio:.1f}"]


def _on_caller(world, function, *arguments):
    return world.view.client[0].apply_async(ipp.Reference(function), *arguments).get()
