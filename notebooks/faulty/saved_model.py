"""A linear model learns, is saved, and is loaded into a fresh model, whose loss is the result."""

import io
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
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for _ in range(20):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs[rank::n]), targets[rank::n]).backward()
    optimizer.step()

file = io.BytesIO()
torch.save(model.state_dict(), file)
file.seek(0)

torch.manual_seed(1)
fresh = nn.Linear(3, 1).double()
fresh.load_state_dict(torch.load(file), strict=False)
result = [nn.functional.mse_loss(fresh(inputs), targets).item()]
print(result)
