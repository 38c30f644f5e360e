"""Processes that start fast, because torch is imported once for all of them, and that end with the notebook.

Every process is a `multiprocessing.Process`. It holds one end of a pipe whose other end only the notebook holds, so it
learns that the notebook has ended, however that ended; and the notebook learns as fast that the process has died.
On Linux the processes are forked from multiprocessing's fork server. To fork a process that has imported torch is a
Linux habit, so elsewhere each one is a fresh Python.
"""

import multiprocessing
import os
import sys
from multiprocessing import forkserver

START_METHOD = "forkserver" if sys.platform == "linux" else "spawn"


def warm_up() -> None:
    """Start the fork server, which goes on to import torch while the caller does something else.

    It does nothing when the fork server is running already, or when this system starts fresh Pythons.
    """
    if START_METHOD != "forkserver":
        return
    forkserver.set_forkserver_preload(["helpers.preload"])
    # Several ranks that share the cores must not start a thread for each core: torch and BLAS read this at import.
    threads = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        forkserver.ensure_running()
    finally:
        if threads is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = threads


def start(target, *arguments) -> multiprocessing.Process:
    """Start a process that calls `target(*arguments)`, a function of an importable module."""
    warm_up()
    process = multiprocessing.get_context(START_METHOD).Process(target=target, args=arguments)
    process.start()
    return process


def pipe():
    """Return the receiving and the sending end of a one-way pipe between this process and one that it starts."""
    return multiprocessing.get_context(START_METHOD).Pipe(duplex=False)
