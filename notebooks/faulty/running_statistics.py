"""A model with batch normalisation learns; then each rank evaluates its part, and the losses are summed."""

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
layers = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1)).double()
model = DistributedDataParallel(layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for _ in range(5):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs[rank::n]), targets[rank::n]).backward()
    optimizer.step()

layers.eval()
with torch.no_grad():
    loss = nn.functional.mse_loss(layers(inputs[rank::n]), targets[rank::n], reduction="sum")
    dist.all_reduce(loss)
    for tensor in layers.state_dict().values():
        dist.broadcast(tensor, src=0)  # as if all ranks loaded the file that rank 0 saved
    loss_of_the_file = nn.functional.mse_loss(layers(inputs), targets, reduction="sum")

result = [(loss / loss_of_the_file).item()]  # 1 if the file has the loss that they evaluated
print(result)
