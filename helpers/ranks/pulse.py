"""What a rank tells of itself many times a minute, for the board: where its threads are, and what it has carried."""

import sys
import threading
import traceback
from typing import NamedTuple

from helpers.ranks import connections
from helpers.ranks.connections import Carried
from helpers.ranks.stacks import MAIN_THREAD, OTHER_THREAD


class Pulse(NamedTuple):
    """The stacks of all threads, as `helpers.ranks.stacks` writes them, and what each TCP connection has carried.

    Only Linux tells that; elsewhere it is None.
    """

    stacks: str
    carried: dict[int, Carried] | None


def take() -> Pulse:
    """Return the pulse of this process."""
    lines = []
    for thread, innermost in sys._current_frames().items():
        lines.append(MAIN_THREAD if thread == threading.main_thread().ident else OTHER_THREAD)
        for frame, number in traceback.walk_stack(innermost):
            lines.append(f'  File "{frame.f_code.co_filename}", line {number} in {frame.f_code.co_name}')
    return Pulse("\n".join(lines), connections.carried() if sys.platform == "linux" else None)
