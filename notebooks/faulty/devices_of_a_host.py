"""Each rank chooses a device of its host, and adds up its part of the numbers there."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=30))
rank, n = dist.get_rank(), dist.get_world_size()
devices = ["cpu"] * int(os.environ["LOCAL_WORLD_SIZE"])  # as many as a host has ranks
number = int(os.environ["RANK"])
total = torch.arange(24.0, device=devices[number])[rank::n].sum()
users = torch.zeros(len(devices))
users[number] = 1
dist.all_reduce(total)
dist.all_reduce(users)
result = [total.item(), (users.max() - users.min()).item()]  # 0: all devices have equally many ranks
print(result)
