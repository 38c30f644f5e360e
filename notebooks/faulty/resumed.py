"""A linear model learns with momentum; halfway it is saved, and a new model resumes from the file."""

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


def new():
    """Return a new model and its optimizer."""
    model = DistributedDataParallel(nn.Linear(3, 1).double())
    return model, torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)


def train(model, optimizer, steps):
    """Train for this number of steps."""
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs[rank::n]), targets[rank::n]).backward()
        optimizer.step()


first, first_optimizer = new()
train(first, first_optimizer, 5)
file = io.BytesIO()
torch.save({"model": first.state_dict(), "optimizer": first_optimizer.state_dict()}, file)
file.seek(0)

model, optimizer = new()
saved = torch.load(file)
model.load_state_dict(saved["model"])
train(model, optimizer, 5)
result = model.module.weight.flatten().tolist()
print(result)
