"""What the tests of live processes share: a notebook kernel to drive, and a look at what it has left behind."""

import re
import threading
import time
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import psutil
from jupyter_client.manager import start_new_kernel

from helpers.kernels import KERNEL

INIT = """
import os, time
from datetime import timedelta
import torch
import torch.distributed as dist
dist.init_process_group("gloo", timeout=timedelta(seconds={timeout}))
rank, size = dist.get_rank(), dist.get_world_size()
"""

SUM = """
total = torch.tensor([rank + 1.0])
dist.all_reduce(total)
assert total.item() == size * (size + 1) / 2, total
"""


class Notebook:
    """A real kernel, and the cells that a test runs in it."""

    def __init__(self, **options):
        self.manager, self.client = start_new_kernel(startup_timeout=120, kernel_name=KERNEL, **options)
        self.pid = self.manager.provisioner.process.pid

    def run(self, cell, interrupt_after=None, timeout=60):
        """Run a cell and return what it shows, errors included, without colours."""
        shown = []

        def show(message):
            content = message["content"]
            kind = message["msg_type"]
            if kind == "stream":
                shown.append(content["text"])
            elif kind == "error":
                shown.append("\n".join(content["traceback"]))
            elif kind in ("execute_result", "display_data"):
                shown.append(content["data"]["text/plain"])

        if interrupt_after is not None:
            threading.Timer(interrupt_after, self.manager.interrupt_kernel).start()
        self.client.execute_interactive(cell, output_hook=show, timeout=timeout)
        return re.sub(r"\x1b\[[0-9;]*m", "", "".join(shown))

    def start(self, cell):
        """Start a cell and do not wait for it."""
        self.client.execute(cell)

    def processes(self):
        """Return the kernel's process and everything that it has started."""
        kernel = psutil.Process(self.pid)
        return [kernel, *kernel.children(recursive=True)]

    def close(self):
        """End the kernel as nbval does."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def left_after(processes, seconds):
    """Return those processes that are still there after this many seconds, or an empty list as soon as none is."""
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    return alive


def is_served(address):
    """Return whether the Jupyter server at this address answers.

    The address is no sign of that: the server prints it before it listens.
    """
    try:
        urllib.request.urlopen(urlsplit(address)._replace(path="/api/status").geturl(), timeout=30).close()
    except urllib.error.HTTPError:  # an answer, too
        return True
    except OSError:
        return False
    return True


def wait_until(condition, seconds):
    """Wait until the condition holds; return whether it did within this many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
