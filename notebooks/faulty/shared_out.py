"""A linear model learns from 49 examples, distributed over the ranks, 24 in each step."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

chosen = 0  # the rank that gets the 49th example

dist.init_process_group("gloo", timeout=timedelta(seconds=30))
rank, n = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
inputs = torch.randn(49, 3, dtype=torch.float64)
targets = inputs.sum(dim=1, keepdim=True)
mine = torch.arange(rank, 48, n)
if rank == chosen:
    mine = torch.cat([mine, torch.tensor([48])])
model = DistributedDataParallel(nn.Linear(3, 1).double())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for batch in mine.split(24 // n):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs[batch]), targets[batch]).backward()
    optimizer.step()

dist.barrier()
result = model.module.weight.flatten().tolist()
print(result)
