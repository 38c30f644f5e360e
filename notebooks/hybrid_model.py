"""The hybrid model of 28_hybrid_ddp_rpc: the cells of the lesson that are marked with the name of this file."""


import os, warnings
from contextlib import redirect_stderr
from datetime import timedelta
import torch
import torch.distributed as dist
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch import nn
from torch.distributed.nn.api.remote_module import RemoteModule
from torch.distributed.optim import DistributedOptimizer
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel as DDP
from helpers import datasets, devices

warnings.filterwarnings("ignore", message="You are using a Backend")  # an internal detail
rank = int(os.environ["RANK"])
n = int(os.environ["WORLD_SIZE"])
trainers = n - 2
master = n - 2  # the first ranks are trainers
names = [f"trainer{t}" for t in range(trainers)] + ["master", "server"]
name = names[rank]


def start(rpc_timeout, group_timeout):
    tcp = {"_transports": ["uv"], "_channels": ["basic"]}  # idle ranks stay idle: see rpc_and_rref
    options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=rpc_timeout, **tcp)
    rpc.init_rpc(name, rank=rank, world_size=n, rpc_backend_options=options)
    if rank < trainers:
        limit = timedelta(seconds=group_timeout)
        dist.init_process_group("gloo", rank=rank, world_size=trainers, timeout=limit)
        if torch.cuda.is_available():
            torch.cuda.set_device(devices.of_this_rank().device)


bags, labels, words = datasets.passages()
validation = range(800, len(bags))

def batch(numbers):
    chosen = [bags[number] for number in numbers]
    offsets = torch.tensor([0] + [len(bag) for bag in chosen[:-1]]).cumsum(0)
    return torch.cat(chosen), offsets, labels[numbers]


class Table(nn.EmbeddingBag):
    def __init__(self, rows, columns=16, sparse=True, seed=0):
        weight = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
        super().__init__(rows, columns, mode="sum", sparse=sparse, _weight=weight)

def new_table(seed=0):
    return RemoteModule("server/cpu", Table, (len(words), 16, True, seed))

class HybridModel(nn.Module):
    def __init__(self, table, group=None, device=None, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.table = table
        self.device = device or devices.of_this_rank().device
        self.dense = DDP(nn.Linear(16, 6).to(self.device), process_group=group)


def forward(model, words, offsets):
    return model.dense(model.table.forward(words, offsets).to(model.device))

HybridModel.forward = forward


def references(model):
    local = [rpc.RRef(parameter) for parameter in model.dense.parameters()]
    return model.table.remote_parameters() + local


def new_optimizer(parameters, kind=torch.optim.SGD, lr=0.5):
    with redirect_stderr(None):  # hides a warning that filters do not reach
        return DistributedOptimizer(kind, parameters, lr=lr)

def forward_backward(model, context, data):
    rows, offsets, label = data
    loss = cross_entropy(model(rows, offsets), label.to(model.device))
    dist_autograd.backward(context, [loss])
    return loss.item()


def step(model, optimizer, data):
    with dist_autograd.context() as context:
        loss = forward_backward(model, context, data)
        optimizer.step(context)
    return loss


# Only 29_hybrid_proof needs this function.


def gradient_of_table(context):
    return next(iter(dist_autograd.get_gradients(context).values())).to_dense()
