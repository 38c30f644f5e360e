"""PyTorch's experimental debug server does what 51_in_your_own_job says of it."""

import pytest

from helpers.torchrun import Job

# The ranks are on a network of their own, so a thread of rank 0 asks for the pages.
SCRIPT = """
import threading, time
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen
import psutil
import torch
import torch.distributed as dist
from torch.distributed.debug import start_debug_server

PORT = 25999

def load():
    time.sleep(600)

def average():
    dist.all_reduce(torch.ones(1))

def page(path):
    while True:
        try:
            with urlopen(f"http://localhost:{PORT}{path}") as answer:
                return f"{answer.status} {answer.read().decode()}"
        except HTTPError as error:
            return f"{error.code} {error.read().decode()}"
        except URLError:  # the server needs a moment to start
            time.sleep(0.1)

def ask():
    stacks = ""
    while not ("in load" in stacks and "in average" in stacks):
        stacks = page("/stacks")
    Path("stacks").write_text(stacks)
    Path("records").write_text(page("/fr_trace"))
    sockets = psutil.net_connections("tcp6")
    Path("addresses").write_text(" ".join(socket.laddr.ip for socket in sockets if socket.laddr.port == PORT))
    print("asked", flush=True)

dist.init_process_group("gloo")
average()
start_debug_server(port=PORT)
if dist.get_rank() == 0:
    threading.Thread(target=ask).start()
    average()
else:
    print("asked", flush=True)
    load()
"""


@pytest.fixture(scope="module")
def answers():
    """Return what rank 0 was told while it hung in `average`, and rank 1 in `load`, by name."""
    job = Job(SCRIPT, 2)
    try:
        job.wait_for("asked")
        yield {name: job.folder.joinpath(name).read_text() for name in ("stacks", "records", "addresses")}
    finally:
        job.end()


def test_the_page_of_stacks_shows_the_line_of_each_rank(answers):
    """`/stacks` of the debug server no longer shows where each rank is: change the section on torchfrtrace in 51."""
    _, of_rank_0, of_rank_1 = answers["stacks"].split("<h2>Rank ")
    assert "in average" in of_rank_0 and "in load" not in of_rank_0
    assert "in load" in of_rank_1


def test_the_page_of_the_flight_records_fails(answers):
    """`/fr_trace` of the debug server now reads the records of gloo: change the section on torchfrtrace in 51."""
    assert answers["records"].startswith("500 ")
    assert "KeyError" in answers["records"]


def test_the_debug_server_listens_on_every_interface(answers):
    """The debug server no longer listens on every network interface: change its warning in 51."""
    assert "::" in answers["addresses"].split()
