"""A model learns; a hook divides gradients by the largest value of all ranks before it sends them."""

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
layers = [nn.Linear(3, 3) for _ in range(9)]
model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(3, 1)).double(), bucket_cap_mb=1e-5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def average(buffer, largest):
    """Average the gradients of a bucket, and return them."""
    buffer /= largest
    dist.all_reduce(buffer)
    return buffer * largest / n


def hook(state, bucket):
    """Return the future of a bucket's average."""
    largest = bucket.buffer().abs().max()
    work = dist.all_reduce(largest, dist.ReduceOp.MAX, async_op=True)
    return work.get_future().then(lambda done: average(bucket.buffer(), largest))


model.register_comm_hook(None, hook)
for _ in range(3):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs[rank::n]), targets[rank::n]).backward()
    optimizer.step()

result = layers[0].weight[0].tolist()
print(result)
