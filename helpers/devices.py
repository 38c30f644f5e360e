"""The choice of a device and a backend for each rank, on any machine."""

import os
from typing import NamedTuple

# The environment variable that tells a rank that all hosts of its world are on one machine and share its GPUs.
HOSTS_SHARE_A_MACHINE = "HOSTS_SHARE_A_MACHINE"


class Choice(NamedTuple):
    """The device and the backend of a rank, and the reason; as text it is the sentence that a notebook prints."""

    device: str
    backend: str
    why: str

    def __str__(self):
        return f"{self.backend} on {self.device}, because {self.why}"


def choose(local_rank: int, local_ranks: int, gpus: int) -> Choice:
    """Return the choice for rank `local_rank` of the `local_ranks` on one machine that has `gpus` GPUs.

    The GPUs are assigned round-robin. NCCL is the fastest backend for CUDA tensors, but by default it refuses two ranks
    on one GPU. gloo allows this, through the CPU's memory, so ranks that share a GPU use gloo.
    """
    if gpus == 0:
        return Choice("cpu", "gloo", "there is no GPU")
    device = f"cuda:{local_rank % gpus}"
    if local_ranks > gpus:
        return Choice(device, "gloo", "ranks share a GPU, which NCCL refuses")
    return Choice(device, "nccl", "each rank has a GPU of its own")


def of_this_rank() -> Choice:
    """Return the choice for the calling rank, from torchrun's environment variables and the GPUs that torch finds."""
    import torch

    local_rank, local_ranks = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    if HOSTS_SHARE_A_MACHINE in os.environ:
        local_rank, local_ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return choose(local_rank, local_ranks, torch.cuda.device_count())
