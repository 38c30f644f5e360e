"""At which address each host of a cluster is reached by all the others."""

from collections.abc import Callable, Sequence

from helpers.errors import WorldError
from helpers.ranks import engine
from helpers.ranks.engine import Door


def find_doors(hosts: Sequence[str], ask: Callable[..., list]) -> list[Door]:
    """Return for each host the first of its addresses that all other hosts reach.

    `ask(function, ...)` has an engine of each host call a function, and returns what they return. Raises `WorldError`
    when there is a host that some other one does not reach.
    """
    offered = ask(engine.open_doors)
    every = [door for doors in offered for door in doors]
    reached = [dict(zip(every, of_host, strict=True)) for of_host in ask(engine.reach, every)]
    chosen = []
    for host, doors in zip(hosts, offered, strict=True):
        good = [door for door in doors if all(of_host[door] for of_host in reached)]
        if not good:
            answers = zip(hosts, reached, strict=True)
            missing = [other for other, of_host in answers if not any(of_host[door] for door in doors)]
            raise WorldError(_say_unreachable(host, doors, missing))
        chosen.append(good[0])
    return chosen


def _say_unreachable(host, doors, missing):
    where = ", ".join(door.address for door in doors) or "it has no address"
    if not missing:
        return (
            f"The hosts of this cluster reach {host} at different addresses ({where}), and none at which all do. A "
            "world needs one network that all its hosts are on."
        )
    return (
        f"{' and '.join(missing)} cannot reach {host} ({where}). In a world every host reaches every other, at any "
        "port: ask who runs the network between them, or start engines on other hosts."
    )
