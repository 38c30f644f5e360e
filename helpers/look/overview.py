"""The representation of a world: where its ranks run, and a line for each rank."""

from typing import TYPE_CHECKING

from helpers.table import table

if TYPE_CHECKING:  # this imports jupyter_client, which takes time; see `helpers.world`
    from helpers.ranks.protocol import Ranks


def overview(world, ranks: "Ranks") -> str:
    """Return where the ranks of a world run, and a table with a line for each rank, as text."""
    header = ["rank", "pid", "device", "state", "memory"]
    where = world.where()
    rows = [
        [
            state.rank,
            pid,
            ranks.device(state.rank),
            state.state,
            "" if state.state == "dead" else f"{ranks.memory(state.rank) / 2**20:.0f} MiB",
        ]
        for state, pid in zip(where, world.pids, strict=True)
    ]
    if len(world.hosts) > 1:
        header.insert(1, "host")
        for row in rows:
            row.insert(1, world.host_of(row[0]))
    lines = [f"on {ranks.where_they_are or _say_where(world, ranks)}", where.note, table(header, rows)]
    return "\n".join(filter(None, lines))


def _say_where(world, ranks):
    network = "a network of their own" if world.network else "the loopback of this machine, open to its other users"
    if len(world.hosts) == 1:
        return network
    if not world.has_cables:
        return f"{len(world.hosts)} hosts in name only, on {network}: {ranks.why_no_cables}"
    out = "".join(f"; the cable of {host} is out" for host in world.hosts if host in ranks.unplugged)
    return f"{len(world.hosts)} hosts, each with a cable to a switch of their own{out}"
