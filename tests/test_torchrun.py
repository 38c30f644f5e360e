"""torchrun for the script of a notebook: its output by rank, on the loopback only."""

import threading
import time

import psutil
import pytest

from helpers import WorldError
from helpers.torchrun import torchrun

SCRIPT = """
import time
from datetime import timedelta
import torch.distributed as dist
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
dist.barrier()
print(f"rank {dist.get_rank()} of {dist.get_world_size()}")
time.sleep(1)
"""


def test_the_output_of_each_rank_in_their_order():
    assert torchrun("import os; print(os.environ['RANK'])", 3) == ["0\n", "1\n", "2\n"]


def test_nothing_listens_off_the_loopback():
    listening = set()
    done = threading.Event()

    def watch():
        while not done.is_set():
            for process in psutil.Process().children(recursive=True):
                try:
                    sockets = process.net_connections("inet")
                except psutil.Error:
                    continue  # it has ended meanwhile
                listening.update(socket.laddr.ip for socket in sockets if socket.status == psutil.CONN_LISTEN)
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        assert torchrun(SCRIPT, 2) == ["rank 0 of 2\n", "rank 1 of 2\n"]
    finally:
        done.set()
        watcher.join()
    assert listening == {"127.0.0.1"}


def test_a_script_that_fails_says_why():
    with pytest.raises(WorldError, match=r"^The script failed under torchrun:[\s\S]*ZeroDivisionError"):
        torchrun("1 / 0", 1)
