"""What only a machine with a GPU can show: `make test-cuda` runs these tests, `make test` leaves them out."""

import os
import signal

import pytest
import torch

from helpers import World, devices

pytestmark = pytest.mark.cuda

SETUP = """
import os, warnings
from datetime import timedelta
import torch
import torch.distributed as dist
import torch.distributed.rpc as rpc
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from helpers import devices

warnings.filterwarnings("ignore", message="You are using a Backend")
choice, gpus = devices.of_this_rank(), torch.cuda.device_count()
rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
"""

ALL_REDUCE = """
dist.init_process_group(choice.backend, timeout=timedelta(seconds=60))
total = torch.tensor([rank + 1.0], device=choice.device)
dist.all_reduce(total)
assert total.item() == n * (n + 1) / 2 and total.device == torch.device(choice.device)
"""

WITH_MAP = """
maps = {f"worker{n - 1 - rank}": {0: gpus - 1}} if mapped and rank == 0 else {}
options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=30, device_maps=maps)
rpc.init_rpc(f"worker{rank}", rank=rank, world_size=n, rpc_backend_options=options)
"""


@pytest.fixture(scope="module", autouse=True)
def gpus():
    count = torch.cuda.device_count()
    assert count, "These tests need a GPU that torch finds."
    return count


@pytest.fixture
def start():
    """A function that starts so many ranks; they end with the test."""
    worlds = []

    def started(ranks):
        worlds.append(World(ranks))
        worlds[-1].view.execute(SETUP)
        return worlds[-1]

    yield started
    for world in worlds:
        world.stop()


@pytest.mark.parametrize("ranks", [2, 4])
def test_all_reduce_on_the_chosen_devices(start, gpus, ranks):
    world = start(ranks)
    world.view.execute(ALL_REDUCE)
    assert world.view["choice"] == [devices.choose(rank, ranks, gpus) for rank in range(ranks)]


def test_nccl_has_each_rank_on_its_own_gpu(start, gpus):
    world = start(gpus)
    assert {choice.backend for choice in world.view["choice"]} == {"nccl"}
    world.view.execute(ALL_REDUCE)


def test_nccl_refuses_two_ranks_on_one_gpu(start, gpus):
    world = start(gpus + 1)
    world.view.execute("""
dist.init_process_group("nccl", timeout=timedelta(seconds=60))
said = ""
try:
    dist.all_reduce(torch.ones(1, device=choice.device))
except Exception as error:
    said = str(error)
""")
    refusals = "Duplicate GPU", "Multiple Ranks are using the same GPU"  # before NCCL 2.30, and since then
    assert any(refusal in said for said in world.view["said"] for refusal in refusals)


def test_ddp_on_the_chosen_devices_gives_the_mean_of_the_gradients(start):
    world = start(2)
    world.view.execute("""
dist.init_process_group(choice.backend, timeout=timedelta(seconds=60))
torch.manual_seed(0)
layer, inputs = nn.Linear(3, 2), torch.full((4, 3), rank + 1.0)
DDP(layer.to(choice.device))(inputs.to(choice.device)).sum().backward()
gradient = layer.weight.grad.cpu()
""")
    for gradient in world.view["gradient"]:
        assert torch.equal(gradient, torch.full((2, 3), 4 * (1 + 2) / 2))


@pytest.mark.parametrize("mapped", [True, False])
def test_rpc_sends_a_tensor_on_a_gpu_where_its_map_says(start, mapped):
    world = start(2)
    world.view["mapped"] = mapped
    world.view.execute(WITH_MAP)
    world.view.client[0].execute(
        """
try:
    said = rpc.rpc_sync("worker1", torch.add, (torch.ones(2, device="cuda"), 1)).tolist()
except RuntimeError as error:
    said = str(error)
""",
        block=True,
    )
    said = world.view.pull("said", targets=0)
    assert said == [2, 2] if mapped else "set_device_map" in said


def test_restarted_ranks_can_use_the_gpu(start):
    torch.ones(1, device="cuda")  # a process that has used CUDA cannot fork ranks; the course's ranks are not its forks
    world = start(2)
    world.view.execute(ALL_REDUCE)
    os.kill(world.pids[1], signal.SIGKILL)
    world.restart()
    world.view.execute(SETUP)
    world.view.execute(ALL_REDUCE)
