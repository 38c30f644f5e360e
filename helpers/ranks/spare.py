"""The spare of a kernel: a copy of its process from before it had threads, which becomes the fork server.

So torch is imported once for a notebook and its ranks, and lies in memory once. A kernel that has been started in
another way has no spare, and multiprocessing starts a fresh Python for its fork server.
"""

import fcntl
import gc
import importlib
import multiprocessing
import os
import sys
from collections.abc import Mapping
from contextlib import contextmanager
from multiprocessing import reduction, resource_tracker, util
from multiprocessing.connection import Connection
from typing import NamedTuple

_STANDARD_STREAMS = (1, 2)  # what the fork server writes goes where that of a fresh Python would


class _Spare(NamedTuple):
    pid: int
    connection: Connection
    environment: Mapping[str, str]  # in which the modules were imported


_spare: _Spare | None = None


def prepare(modules: list[str], environment: Mapping[str, str]) -> None:
    """Import these modules in this environment, and fork the spare; only a process that has no other thread can.

    A module that cannot be imported is left out: the cell that imports it will say why.
    """
    global _spare
    with changed(environment):
        for module in modules:
            try:
                importlib.import_module(module)
            except ImportError:
                pass
    gc.collect()
    gc.freeze()  # a garbage collection writes to the objects that it visits, and a page written to is shared no longer
    ours, theirs = multiprocessing.Pipe()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _wait(theirs)
    theirs.close()
    _spare = _Spare(pid, ours, dict(environment))


@contextmanager
def in_use(environment: Mapping[str, str]):
    """Have multiprocessing start its fork server from the spare, if there is one that fits this environment."""
    resource_tracker.ensure_running()  # it would be started in the same way
    # Through this it starts a fresh Python; it is not documented, so tests/ranks/test_spare.py looks.
    fresh = util.spawnv_passfds

    def start(path, arguments, descriptors):
        return _ask(arguments[-1], descriptors, environment) or fresh(path, arguments, descriptors)

    util.spawnv_passfds = start
    try:
        with changed(environment):
            yield
    finally:
        util.spawnv_passfds = fresh


@contextmanager
def changed(environment: Mapping[str, str]):
    """Set these variables for a while."""
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _ask(code, descriptors, environment):
    """Let the spare run the code, with these file descriptors; return its process id, or None if that cannot be."""
    global _spare
    spare, _spare = _spare, None
    if spare is None:
        return None
    with spare.connection as connection:  # without an order the spare ends
        if all(environment.get(name) == value for name, value in spare.environment.items()):
            numbers = [*descriptors, *_STANDARD_STREAMS]
            try:
                connection.send((code, dict(os.environ), os.getcwd(), numbers))
                for number in numbers:
                    reduction.send_handle(connection, number, spare.pid)
                return spare.pid
            except OSError:  # somebody has killed it
                pass
    os.waitpid(spare.pid, 0)
    return None


def _wait(connection):
    """Wait for an order, and carry it out as a fresh Python would; does not return."""
    os.setsid()  # an Interrupt is for the kernel's process group
    try:
        code, environment, folder, numbers = connection.recv()
        received = [reduction.recv_handle(connection) for _ in numbers]
    except (EOFError, OSError):  # the kernel has ended, or wants a fresh Python
        os._exit(0)
    connection.close()
    # They get the numbers that they had there, by way of higher ones, because here these may be in use.
    higher = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, max(numbers) + 1) for descriptor in received]
    for descriptor in received:
        os.close(descriptor)
    for descriptor, number in zip(higher, numbers, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    exec(code, {})
    sys.exit()
