"""A linear model accumulates the gradients of four micro-batches in each step, and counts the bytes that it sends."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo", timeout=timedelta(seconds=30))
rank, n = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
inputs = torch.randn(96, 3, dtype=torch.float64)
targets = inputs.sum(dim=1, keepdim=True)
model = DistributedDataParallel(nn.Linear(3, 1).double())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
sent = 0


def count(state, bucket):
    """Average a bucket of gradients over the ranks, and count its bytes."""
    global sent
    sent += bucket.buffer().nbytes
    return allreduce_hook(state, bucket)


model.register_comm_hook(None, count)
for _ in range(3):
    for micro_batch in range(4):
        mine = slice(24 * micro_batch + rank, 24 * micro_batch + 24, n)
        loss = nn.functional.mse_loss(model(inputs[mine]), targets[mine]) / 4
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()

result = [*model.module.weight.flatten().tolist(), sent]
print(result)
