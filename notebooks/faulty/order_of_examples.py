"""A linear model learns from 48 examples, 24 in each step, in a new order in each epoch."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo", timeout=timedelta(seconds=30))
n = dist.get_world_size()
torch.manual_seed(0)
inputs = torch.randn(48, 3, dtype=torch.float64)
targets = inputs.sum(dim=1, keepdim=True) + torch.randn(48, 1, dtype=torch.float64)
dataset = TensorDataset(inputs, targets)
sampler = DistributedSampler(dataset, shuffle=True)
loader = DataLoader(dataset, batch_size=24 // n, sampler=sampler)
model = DistributedDataParallel(nn.Linear(3, 1).double())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(4):
    for batch, target in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(batch), target).backward()
        optimizer.step()

result = model.module.weight.flatten().tolist()
print(result)
