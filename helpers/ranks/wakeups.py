"""Reduce the wake-ups of idle ranks.

gloo's I/O thread wakes a hundred times a second to check whether it should end. Linux can let a thread sleep longer
than requested, and a thread inherits this timer slack from the thread that starts it.
"""

import ctypes
import sys

_PR_SET_TIMERSLACK = 29  # linux/prctl.h
_NANOSECONDS_LONGER = 50_000_000
_AS_EVERYBODY = 0


def reduce() -> None:
    """Let the threads of new process groups sleep up to 0.05 s longer when nothing arrives.

    Arriving data still wakes them at once. In return, ending a group takes up to 0.05 s longer.
    """
    if sys.platform != "linux":
        return
    from helpers import tap

    libc = ctypes.CDLL(None)

    def sleep_longer(event):
        libc.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(_NANOSECONDS_LONGER))

    def sleep_as_everybody(event):
        libc.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(_AS_EVERYBODY))

    tap.subscribe(tap.NewGroup, begin=sleep_longer, end=sleep_as_everybody)
