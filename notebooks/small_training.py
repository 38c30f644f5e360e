"""A small training run on any number of ranks: cells of 40_ranks_come_and_go that every new rank runs."""

SEED = 0


import json
import os
import tempfile
import time
from datetime import timedelta
from pathlib import Path
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector as vector, vector_to_parameters

BATCH = 64
draw = torch.Generator().manual_seed(SEED)
inputs = torch.randn(16 * BATCH, 20, generator=draw, dtype=torch.float64)
labels = (inputs @ torch.randn(20, 10, generator=draw, dtype=torch.float64)).argmax(dim=1)


class Training:
    def __init__(self):
        torch.manual_seed(SEED)
        self.model = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 10)).double()
        self.momentum = torch.zeros_like(self.weights())
        self.step = 0  # number of steps taken

    def weights(self):
        return vector(self.model.parameters()).detach()

    def gradient(self, rank, n):
        first = self.step * BATCH % len(inputs)
        mine = range(first, first + BATCH)[rank::n]
        loss = cross_entropy(self.model(inputs[mine]), labels[mine], reduction="sum") / BATCH
        return vector(torch.autograd.grad(loss, list(self.model.parameters())))

    def update(self, gradient):
        self.momentum = 0.9 * self.momentum + gradient
        vector_to_parameters(self.weights() - 0.1 * self.momentum, self.model.parameters())
        self.step += 1

    def state(self):
        return torch.cat([torch.tensor([float(self.step)]), self.weights(), self.momentum])

    def load(self, state):
        self.step = int(state[0])
        weights, self.momentum = state[1:].clone().chunk(2)
        vector_to_parameters(weights, self.model.parameters())


def single_process(steps):
    training = Training()
    for _ in range(steps):
        training.update(training.gradient(0, 1))
    return training

def equals_single_process(training):
    difference = training.weights() - single_process(training.step).weights()
    return difference.abs().max().item() < 1e-12
