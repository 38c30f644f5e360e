"""Samples that a rank takes of itself for the board: its stacks, and the bytes of its connections."""

import sys
from typing import NamedTuple

from helpers.probe import connections, stacks
from helpers.probe.connections import ConnectionBytes
from helpers.probe.stacks import Stacks


class Sample(NamedTuple):
    """The stacks of all threads, without arguments, and the bytes of each TCP connection, None except on Linux."""

    stacks: Stacks
    carried: dict[int, ConnectionBytes] | None


def take() -> Sample:
    """Return a sample of this process."""
    carried = connections.carried() if sys.platform == "linux" else None
    return Sample(stacks.of_this_process(with_arguments=False), carried)
