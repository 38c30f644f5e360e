"""What the tests of live processes share: a notebook kernel to drive, and a look at what it has left behind."""

import os
import re
import tempfile
import threading
import time
import urllib.error
import urllib.request
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from jupyter_client.manager import start_new_kernel

from helpers.kernels import KERNEL
from helpers.ranks.background import Background

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


WHEN = """
def wait_and_act():
    import time
    while not ({condition}):
        time.sleep(0.02)
    {action}

import threading
threading.Thread(target=wait_and_act, daemon=True).start()
"""


class Notebook:
    """A real kernel, and the cells that a test runs in it."""

    def __init__(self, **options):
        self.manager, self.client = start_new_kernel(startup_timeout=120, kernel_name=KERNEL, **options)
        self.pid = self.manager.provisioner.process.pid
        self._folder = tempfile.TemporaryDirectory()
        self._numbers = count()

    def run(self, cell, interrupt_when=None, timeout=60):
        """Run a cell and return what it shows, errors included, without colours.

        `interrupt_when`, if given, is a function that is called until it returns True: then the kernel is interrupted,
        unless the cell has ended before. See `sees`.
        """
        shown = []
        over = threading.Event()

        def interrupt():
            while not over.wait(0.02):
                if interrupt_when():
                    self.manager.interrupt_kernel()
                    return

        interrupter = threading.Thread(target=interrupt)

        def show(message):
            content = message["content"]
            kind = message["msg_type"]
            if kind == "stream":
                shown.append(content["text"])
            elif kind == "error":
                shown.append("\n".join(content["traceback"]))
            elif kind in ("execute_result", "display_data"):
                shown.append(content["data"]["text/plain"])

        if interrupt_when is not None:
            interrupter.start()
        try:
            self.client.execute_interactive(cell, output_hook=show, timeout=timeout)
        finally:
            over.set()
            if interrupt_when is not None:
                interrupter.join()
        return re.sub(r"\x1b\[[0-9;]*m", "", "".join(shown))

    def start(self, cell):
        """Start a cell and do not wait for it."""
        self.client.execute(cell)

    def when(self, condition, action):
        """Have a thread of the kernel run an action once an expression is true there, also while a cell runs."""
        shown = self.run(WHEN.format(condition=condition, action=action))
        assert shown == "", shown

    def sees(self, condition):
        """Return a function that tells whether an expression has been true in the kernel, also while a cell runs."""
        seen = Path(self._folder.name, str(next(self._numbers)))
        self.when(condition, f"open({str(seen)!r}, 'w').close()")
        return seen.exists

    def processes(self):
        """Return the kernel's process and everything that it has started."""
        kernel = psutil.Process(self.pid)
        return [kernel, *kernel.children(recursive=True)]

    def close(self):
        """End the kernel as nbval does."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self._folder.cleanup()


def still(condition):
    """Return an expression that is true once this condition is true twice, with a second in between.

    A rank may be in its call while the notebook still sends the call to other ranks. Only once the notebook waits for
    all of them does it pass an interrupt on.
    """
    return f"({condition}) and not __import__('time').sleep(1) and ({condition})"


def ranks_that_raised(shown):
    """Return of which ranks a notebook shows errors: "0-1" when they are equal, "0 1" when they differ."""
    return " ".join(re.findall(r"^Ranks? (\S+) raised:$", shown, re.MULTILINE))


def left_after(processes, seconds):
    """Return those processes that are still there after this many seconds, or an empty list as soon as none is."""
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    return alive


def run_command(command, environment, log, seconds):
    """Run a command as ranks run, on a private network, and end every process that it has started.

    The output goes to `log`. Return the exit code, or None when the command did not end within this many seconds.
    """
    running = Background(os.execvpe, (command[0], command, environment), log, seconds)
    try:
        running.wait(seconds + 10)
        return running.exit_code
    finally:
        running.end()


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
