"""What a rank tells of itself many times a minute, for the board: where its threads are, and what it has carried."""

import sys
from typing import NamedTuple

from helpers.ranks import connections, stacks
from helpers.ranks.connections import Carried


class Pulse(NamedTuple):
    """The stacks of all threads, as `helpers.ranks.stacks` writes them, and what each TCP connection has carried.

    Only Linux tells that; elsewhere it is None.
    """

    stacks: str
    carried: dict[int, Carried] | None


def take() -> Pulse:
    """Return the pulse of this process."""
    carried = connections.carried() if sys.platform == "linux" else None
    return Pulse(stacks.of_all_threads(with_arguments=False), carried)
