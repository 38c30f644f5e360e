"""A linear model learns from 24 examples, distributed over the ranks; the loss is the mean over all examples."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo", timeout=timedelta(seconds=30))
rank, n = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
inputs = torch.randn(24, 3, dtype=torch.float64)
targets = inputs.sum(dim=1, keepdim=True)
model = DistributedDataParallel(nn.Linear(3, 1).double())
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)

for _ in range(5):
    optimizer.zero_grad()
    errors = (model(inputs[rank::n]) - targets[rank::n]) ** 2
    loss = n * errors.mean()
    loss.backward()
    optimizer.step()

result = model.module.weight.flatten().tolist()
print(result)
