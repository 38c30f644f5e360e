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
    forkserver.set_forkserver_preload(["helpers.ranks.preload"])
    changed = at_import()
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        forkserver.ensure_running()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def at_import() -> dict[str, str]:
    """Return the environment variables that torch reads when a rank imports it.

    Several ranks that share the cores must not start a thread for each core. And c10d warns of every connection whose
    host has no name, as it is on the loopback of a machine that is offline; whoever wants to see it sets the level.
    """
    return {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR")}


def start(target, *arguments) -> multiprocessing.Process:
    """Start a process that calls `target(*arguments)`, a function of an importable module."""
    warm_up()
    process = multiprocessing.get_context(START_METHOD).Process(target=target, args=arguments)
    process.start()
    return process


def pipe():
    """Return the receiving and the sending end of a one-way pipe between this process and one that it starts."""
    return multiprocessing.get_context(START_METHOD).Pipe(duplex=False)
