"""A sharded model learns from 24 examples; then one rank reports the norm of its weight."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

chosen = 0  # the rank that reports

dist.init_process_group("gloo", timeout=timedelta(seconds=30))
rank, n = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
inputs = torch.randn(24, 3, dtype=torch.float64)
targets = inputs.cumsum(dim=1).repeat(1, 8)
model = fully_shard(nn.Linear(3, 24).double(), mesh=init_device_mesh("cpu", (n,)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for _ in range(5):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs[rank::n]), targets[rank::n]).backward()
    optimizer.step()

if rank == chosen:
    weight = model.weight.full_tensor()
    norm = weight.norm().item()
dist.barrier()
result = [norm] if rank == chosen else []
print(result)
