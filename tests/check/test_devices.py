"""The choice of device and backend, for machines that are not here; and that nothing goes to a GPU without it."""

import re
from pathlib import Path

import nbformat
import pytest
import torch

from helpers import devices

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("gpus", "places", "backend"),
    [
        (0, ["cpu", "cpu", "cpu", "cpu"], "gloo"),
        (1, ["cuda:0", "cuda:0", "cuda:0", "cuda:0"], "gloo"),
        (2, ["cuda:0", "cuda:1", "cuda:0", "cuda:1"], "gloo"),
        (8, ["cuda:0", "cuda:1", "cuda:2", "cuda:3"], "nccl"),
    ],
)
def test_four_ranks(gpus, places, backend):
    choices = [devices.choose(rank, 4, gpus) for rank in range(4)]
    assert [choice.device for choice in choices] == places
    assert {choice.backend for choice in choices} == {backend}


@pytest.mark.parametrize("ranks", range(1, 9))
@pytest.mark.parametrize("gpus", [1, 2, 8])
def test_nccl_never_has_two_ranks_on_one_gpu(ranks, gpus):
    choices = [devices.choose(rank, ranks, gpus) for rank in range(ranks)]
    alone = len({choice.device for choice in choices}) == ranks
    assert all((choice.backend == "nccl") == alone for choice in choices)


def test_hosts_on_one_machine_share_its_gpus(monkeypatch):
    for name, value in {"RANK": 1, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert devices.of_this_rank().backend == "nccl"  # the other host has a GPU of its own
    monkeypatch.setenv(devices.HOSTS_SHARE_A_MACHINE, "1")
    assert devices.of_this_rank().backend == "gloo"


def test_the_sentence():
    assert str(devices.choose(0, 4, 0)) == "gloo on cpu, because there is no GPU"
    assert str(devices.choose(3, 4, 2)) == "gloo on cuda:1, because ranks share a GPU, which NCCL refuses"


def code():
    for path in [*ROOT.glob("notebooks/**/*.ipynb"), *ROOT.glob("helpers/**/*.py")]:
        text = path.read_text()
        if path.suffix == ".ipynb":
            cells = nbformat.reads(text, as_version=4).cells
            text = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
        yield pytest.param(text, id=path.stem)


@pytest.mark.parametrize("text", list(code()))
def test_no_gpu_is_taken_for_granted(text):
    assert not re.search(r"\.cuda\(|[\"']cuda:\d", text)
