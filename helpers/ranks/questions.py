"""Questions that a rank answers beside its cells, in a thread of its own: also while a cell runs, or hangs in C++.

A question is a function of an importable module, with its arguments; the rank calls it and sends back what it returns.
It goes through a socket in the private folder of the world, and leaves nothing behind in the queue of the cells. While
another thread of the rank keeps the lock of Python there is no answer. When the function raises, the answer is a
`Failed`, and the log of the rank has the traceback.
"""

import logging
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from helpers.ranks.logs import log_to_standard_error, say

_logger = logging.getLogger(__name__)

_WAITING_QUESTIONS = 16
_SECONDS_TO_HEAR = 1


class Failed(NamedTuple):
    """The answer of a rank on which a question has raised; `error` has the class and the text of the exception."""

    error: str

    def __str__(self):
        return f"could not answer, because its helpers raised {self.error}"


def address(directory: str, rank: int) -> str:
    """Return the socket at which a rank is asked; its name is short, because the system limits it."""
    return str(Path(directory, f"ask-{rank}"))


# ---------------------------------------------------------------- in the rank


def answer(rank: int, directory: str) -> None:
    """From now on this process answers what it is asked."""
    log_to_standard_error()
    path = address(directory, rank)
    Path(path).unlink(missing_ok=True)  # that of the rank before a restart
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(_WAITING_QUESTIONS)
    threading.Thread(target=_answer_all, args=[listener], daemon=True).start()


def _answer_all(listener):
    while True:
        connection, _ = listener.accept()
        with connection, suppress(OSError):  # the notebook waits no longer
            connection.settimeout(_SECONDS_TO_HEAR)
            connection.sendall(_answer(_read(connection, _SECONDS_TO_HEAR)))


def _answer(question):
    try:
        function, arguments = pickle.loads(question)
        return pickle.dumps(function(*arguments))
    except Exception as error:  # the thread has to live on, and the notebook is told
        _logger.exception("a question has failed")
        return pickle.dumps(Failed(say(error)))


# ---------------------------------------------------------------- in the notebook


def ask(directory: str, ranks: Iterable[int], function: Callable, *arguments, seconds: float) -> dict[int, object]:
    """Ask ranks, all at once; return what each of them has answered within this many seconds in all.

    An answer is what the function has returned, or a `Failed` when it has raised.
    """
    deadline = time.monotonic() + seconds
    question = pickle.dumps((function, arguments))
    asked, answers = {}, {}
    with ExitStack() as connections:
        for rank in ranks:
            connection = connections.enter_context(socket.socket(socket.AF_UNIX))
            with suppress(OSError):  # the rank is dead, or has not heard so many questions before this one
                connection.settimeout(_left(deadline))
                connection.connect(address(directory, rank))
                connection.sendall(question)
                connection.shutdown(socket.SHUT_WR)
                asked[rank] = connection
        for rank, connection in asked.items():
            with suppress(OSError, EOFError):
                answers[rank] = pickle.loads(_read(connection, _left(deadline)))
    return answers


def _left(deadline):
    return max(0.001, deadline - time.monotonic())  # 0 would mean something else to a socket


def _read(connection, seconds):
    """Return all that comes before the other end has said its last; raise TimeoutError after this many seconds."""
    deadline = time.monotonic() + seconds
    pieces = []
    while not pieces or pieces[-1]:
        connection.settimeout(_left(deadline))
        pieces.append(connection.recv(2**16))
        if time.monotonic() > deadline:
            raise TimeoutError
    return b"".join(pieces)
