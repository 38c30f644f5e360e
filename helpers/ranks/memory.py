"""The memory that ranks use, and the memory that is free."""

from contextlib import suppress
from pathlib import Path

import psutil

from helpers.errors import WorldError
from helpers.ranks import prefork

MiB = 2**20
_OWN_GROUPS, _GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
# The files with the limit and the usage of a control group, and the line of its memory.stat that counts the cached
# files which the kernel drops when memory is needed. Without a limit, a version 1 group reports more than all memory.
_VERSION_2 = "memory.max", "memory.current", "inactive_file"
_VERSION_1 = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"

# Measured with torch 2.13 on Linux. A new rank has 29 MiB of its own, and up to 165 MiB while it works in
# 44_fully_shard. A rank that shares no memory starts with 230 MiB.
RANK = {"forkserver": 170 * MiB, "spawn": 300 * MiB}


def free() -> int:
    """Return the bytes that are available on the machine, or to this process's control groups if that is less."""
    available = psutil.virtual_memory().available
    try:
        groups = _groups(_OWN_GROUPS.read_text(), _GROUPS)
    except OSError:  # not Linux
        groups = []
    return int(max(0, min([available, *map(_free_in, groups)])))


def _groups(own: str, root: Path) -> list[Path]:
    """Return the folders of a process's control groups and of their parents, because each can limit its memory.

    `own` is the text of /proc/self/cgroup, `root` the folder where control groups are mounted; see cgroups(7). Inside a
    container some of these folders may not exist, because the container sees its own group as the root.
    """
    groups = []
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":  # version 2
            tops = [root, root / "unified"]
        elif "memory" in controllers.split(","):
            tops = [root / "memory"]
        else:
            continue
        for top in tops:
            group = top / path.lstrip("/")
            groups += [folder for folder in (group, *group.parents) if folder == top or top in folder.parents]
    return groups


def _free_in(group: Path) -> float:
    """Return the bytes that a control group can still allocate, infinite when it has no limit or does not exist.

    The group's usage includes cached files. When memory is needed, the kernel drops cached files that were not read
    again recently.
    """
    for limit, used, inactive in (_VERSION_2, _VERSION_1):
        with suppress(OSError, ValueError, KeyError):  # the file does not exist, or the limit is "max"
            most, now = int((group / limit).read_text()), int((group / used).read_text())
            statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            return most - now + int(statistics[inactive])
    return float("inf")


def share(pid: int) -> int:
    """Return the bytes of memory that a process uses; a shared page is divided among the processes that share it.

    Only Linux can divide shared pages; elsewhere they count in full.
    """
    process = psutil.Process(pid)
    return process.memory_full_info().pss if psutil.LINUX else process.memory_info().rss


def require_room(size: int, force: bool) -> None:
    """Raise `WorldError` for an impossible `size`, and, unless `force` is set, for too little free memory."""
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise WorldError(f"World({size!r}): give the number of ranks as a whole number from 1 up, as in World(4).")
    per_rank, room = RANK[prefork.START_METHOD], free()
    if size * per_rank > room and not force:
        raise WorldError(
            f"World({size}): a rank takes about {per_rank / MiB:.0f} MiB, so {size} of them take "
            f"{size * per_rank / 2**30:.1f} GiB, and {room / 2**30:.1f} GiB are free. The largest world that fits has "
            f"{room // per_rank} ranks. World({size}, force=True) starts this one all the same."
        )
