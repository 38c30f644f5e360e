"""Each rank counts the positive examples in its part, and how many were predicted; the result is the recall."""

from datetime import timedelta

import torch
import torch.distributed as dist

chosen = 0  # the positive examples are in this part of the data

dist.init_process_group("gloo", timeout=timedelta(seconds=30))
rank, n = dist.get_rank(), dist.get_world_size()
labels, predicted = torch.zeros(24), torch.zeros(24)
first = chosen * 24 // n
labels[first : first + 3] = 1
predicted[first : first + 2] = 1
part = slice(rank * 24 // n, (rank + 1) * 24 // n)

counts = torch.stack([predicted[part].sum(), labels[part].sum()])
if labels[part].sum() > 0:
    dist.all_reduce(counts)
examples = torch.tensor(float(len(labels[part])))
dist.all_reduce(examples)
result = [(counts[0] / counts[1]).item(), examples.item()]
print(result)
