"""All that a process has started, and what that has started in turn: kept in sight, and ended with it."""

import os
from contextlib import suppress

import psutil

from helpers.ranks import namespaces

_SECONDS_TO_END = 5


def begin_family() -> None:
    """Make this process the head of a family that can be ended as a whole, and whose files only this user can read."""
    os.setsid()  # an Interrupt of the notebook, or its end by force, goes to its whole process group
    os.umask(0o077)  # the private folder is the first wall, this is the second
    namespaces.adopt_orphans()


def end_family() -> None:
    """Kill every descendant of this process, also those whose own parent is gone."""
    this = psutil.Process()
    while alive := [child for child in this.children(recursive=True) if not _is_over(child)]:
        for child in alive:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(alive, timeout=_SECONDS_TO_END)


def _is_over(process):
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
