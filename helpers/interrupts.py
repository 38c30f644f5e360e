"""Defer an Interrupt while a step runs that must not be left half done."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def interrupted_later(at_once: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Defer an Interrupt until the end of the block; only `at_once` is called immediately when it arrives."""
    if threading.current_thread() is not threading.main_thread():  # an Interrupt reaches only the main thread
        yield
        return
    interrupts = []

    def note(*_):
        interrupts.append(True)
        at_once()

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if interrupts:
            signal.raise_signal(signal.SIGINT)
