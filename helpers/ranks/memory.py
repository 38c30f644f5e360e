"""How much memory ranks take, and how much there is."""

from pathlib import Path

import psutil

from helpers.errors import WorldError
from helpers.ranks import processes

MiB = 2**20
_CONTAINER = Path("/sys/fs/cgroup")

# Measured with torch 2.13 on Linux. A rank has 29 MiB for itself when it has just been made, and up to 165 at work in
# 32_fully_shard. One that shares nothing begins with 230.
RANK = {"forkserver": 170 * MiB, "spawn": 300 * MiB}


def free() -> int:
    """Return the bytes that can still be taken: what the machine has available, or the container, if that is less."""
    available = psutil.virtual_memory().available
    return max(0, min(available, _free_in(_CONTAINER)))


def _free_in(group: Path) -> float:
    """Return the bytes that a control group can still take; see memory.max and memory.stat in cgroup-v2 of the kernel.

    Its use counts the files that it has read, too. Those that it has not read again lately go when memory is needed.
    """
    try:
        limit = (group / "memory.max").read_text().strip()
        used = int((group / "memory.current").read_text())
        statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except OSError:
        return float("inf")  # no such group
    return float("inf") if limit == "max" else int(limit) - used + int(statistics["inactive_file"])


def share(pid: int) -> int:
    """Return the bytes of memory that a process takes, each page that it shares divided among those who share it.

    Only Linux tells shared pages apart; elsewhere they count in full.
    """
    process = psutil.Process(pid)
    return process.memory_full_info().pss if psutil.LINUX else process.memory_info().rss


def require_room(size: int, force: bool) -> None:
    """Raise `WorldError` when so many ranks do not fit into the memory that is free, unless they are forced in."""
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise WorldError(f"World({size!r}): give the number of ranks as a whole number from 1 up, as in World(4).")
    per_rank, room = RANK[processes.START_METHOD], free()
    if size * per_rank > room and not force:
        raise WorldError(
            f"World({size}): a rank takes about {per_rank / MiB:.0f} MiB, so {size} of them take "
            f"{size * per_rank / 2**30:.1f} GiB, and {room / 2**30:.1f} GiB are free. The largest world that fits has "
            f"{room // per_rank} ranks. World({size}, force=True) starts this one all the same."
        )
