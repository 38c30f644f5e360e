"""A sharded model learns from 24 examples; each step clips the gradient to a norm of at most 0.1."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo", timeout=timedelta(seconds=30))
rank, n = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
inputs = torch.randn(24, 3, dtype=torch.float64)
targets = inputs.cumsum(dim=1).repeat(1, 8)
model = fully_shard(nn.Linear(3, 24).double(), mesh=init_device_mesh("cpu", (n,)))
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)

for _ in range(5):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs[rank::n]), targets[rank::n]).backward()
    shards = [parameter.grad.to_local() for parameter in model.parameters()]
    norm = nn.utils.get_total_norm(shards)
    for shard in shards:
        shard.mul_(min(1, 0.1 / (norm + 1e-6)))
    optimizer.step()

result = model.weight.full_tensor()[0].tolist()
print(result)
