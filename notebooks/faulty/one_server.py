"""Every trainer has one rank add its gradients to a weight; together they send 24."""

import os
import threading
import time

import torch.distributed.rpc as rpc

chosen = 0  # the rank of the server


class Server:
    """A weight that the trainers share."""

    def __init__(self):
        self.weight = 0.0
        self.lock = threading.Lock()

    def add(self, gradient):
        """Add a gradient to the weight, as an optimizer does it: read, compute, write."""
        weight = self.weight
        time.sleep(0.005)  # the optimizer at work
        self.weight = weight + gradient


def add(gradient):
    """Have the server add a gradient; it runs there."""
    server.add(gradient)


rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
server = Server()
rpc.init_rpc(f"worker{rank}", rank=rank, world_size=n)
for _ in range(24 // n):
    rpc.rpc_sync(f"worker{chosen}", add, args=(1.0,), timeout=20)
rpc.shutdown(timeout=20)
result = [server.weight] if rank == chosen else []
print(result)
