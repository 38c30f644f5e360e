"""How much memory ranks take, and how much there is."""

from pathlib import Path

import psutil

MiB = 2**20

# Measured with torch 2.13 on Linux, then rounded up to leave room for the work of a lesson.
RANK = {"forkserver": 100 * MiB, "spawn": 300 * MiB}


def free() -> int:
    """Return the bytes that can still be taken: what the machine has available, or the container, if that is less."""
    available = psutil.virtual_memory().available
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and (text := limit.read_text().strip()) != "max":
        available = min(available, int(text) - int(used.read_text()))
    return max(available, 0)


def share(pid: int) -> int:
    """Return the bytes of memory that a process takes, each page that it shares divided among those who share it.

    Only Linux tells shared pages apart; elsewhere they count in full.
    """
    process = psutil.Process(pid)
    return process.memory_full_info().pss if psutil.LINUX else process.memory_info().rss
