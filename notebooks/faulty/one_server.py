"""Every trainer sends gradients to one rank, which adds them to a weight: 24 gradients in all."""

import os
import time

import torch.distributed.rpc as rpc

chosen = 0  # the rank of the server


class Server:
    """A weight that the trainers share."""

    def __init__(self):
        self.weight = 0.0

    def add(self, gradient):
        """Add a gradient to the weight, as an optimizer does: read, compute, write."""
        weight = self.weight
        time.sleep(0.005)  # the optimizer at work
        self.weight = weight + gradient


def add(gradient):
    """Add a gradient to the weight of the server, on which this runs."""
    server.add(gradient)


rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
server = Server()
rpc.init_rpc(f"worker{rank}", rank=rank, world_size=n)
for _ in range(24 // n):
    rpc.rpc_sync(f"worker{chosen}", add, args=(1.0,), timeout=20)
rpc.shutdown(timeout=20)
result = [server.weight] if rank == chosen else []
print(result)
