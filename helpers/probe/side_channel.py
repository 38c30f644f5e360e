"""The side channel: a rank of this machine answers questions in a separate thread, even while a cell runs or hangs.

A question is a function of an importable module, with its arguments. The rank calls the function and sends back the
result, or a `Failed` if the function raised an error; the log of the rank has the traceback. The channel is a Unix
socket in the private folder of the world, so it bypasses the queue of cells. A rank cannot answer while another of its
threads holds the GIL; see `helpers.probe.stacks`. For ranks of a cluster see `helpers.ranks.engine`.
"""

import logging
import pickle
import selectors
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

_logger = logging.getLogger(__name__)

_WAITING_QUESTIONS = 16
_SECONDS_TO_TRANSFER = 1
_BYTES_OF_LENGTH = 8  # an answer begins with its length


class Failed(NamedTuple):
    """The answer to a question whose function raised an error; `error` has the class and the text of the exception."""

    error: str

    def __str__(self):
        return f"could not answer, because its helpers raised {self.error}"


def address(directory: str, rank: int) -> Path:
    """Return the path of a rank's socket in the world's folder; it is short, because the system limits its length."""
    return Path(directory, f"ask-{rank}")


# ---------------------------------------------------------------- in the rank


def answer(rank: int, directory: str) -> None:
    """Start the thread that answers questions for this rank."""
    log_to_standard_error()
    path = address(directory, rank)
    path.unlink(missing_ok=True)  # left by the process that was this rank before a restart
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(_WAITING_QUESTIONS)
    threading.Thread(target=_answer_all, args=[listener], daemon=True).start()


def _answer_all(listener):
    while True:
        connection, _ = listener.accept()
        with connection, suppress(OSError):  # the notebook no longer waits
            connection.settimeout(_SECONDS_TO_TRANSFER)
            answer = _answer(connection)
            connection.sendall(len(answer).to_bytes(_BYTES_OF_LENGTH, "big") + answer)


def _answer(connection):
    try:
        # A pickle marks its own end. Waiting for the end of the connection would require the GIL once more.
        with connection.makefile("rb") as question:
            function, arguments = pickle.load(question)
        return pickle.dumps(call(function, arguments))
    except Exception as error:  # the thread must continue, and the notebook receives the error
        return pickle.dumps(failed(error))


def call(function: Callable, arguments: Sequence = ()) -> object:
    """Return the result of a function, or a `Failed` if it raises an error."""
    try:
        return function(*arguments)
    except Exception as error:
        return failed(error)


def failed(error: Exception) -> Failed:
    """Log the error that is being handled, and return it as the answer of the rank."""
    _logger.exception("a question has failed")
    return Failed(" ".join("".join(traceback.format_exception_only(error)).split()))


def log_to_standard_error() -> None:
    """Send the log of the helpers in this process to standard error, which leads to the log of the rank.

    `sys.stderr` would put the log into the output of the running cell. A second call does nothing.
    """
    logger = logging.getLogger("helpers")
    if not logger.handlers:
        logger.addHandler(logging.StreamHandler(sys.__stderr__))
        logger.propagate = False


# ---------------------------------------------------------------- in the notebook


def ask(directory: str, ranks: Iterable[int], function: Callable, *arguments, seconds: float) -> dict[int, object]:
    """Ask ranks at the same time; return the answers that arrive within this many seconds.

    An answer is the result of the function, or a `Failed` if the function raised an error.
    """
    deadline = time.monotonic() + seconds
    question = pickle.dumps((function, arguments))
    received = {}
    with selectors.DefaultSelector() as waiting, ExitStack() as connections:
        for rank in ranks:
            connection = connections.enter_context(socket.socket(socket.AF_UNIX))
            connection.settimeout(_SECONDS_TO_TRANSFER)
            with suppress(OSError):  # the rank is dead, or has too many unanswered questions
                connection.connect(str(address(directory, rank)))
                connection.sendall(question)
                waiting.register(connection, selectors.EVENT_READ, rank)
                received[rank] = bytearray()
        while waiting.get_map() and (seconds_left := deadline - time.monotonic()) > 0:
            for key, _ in waiting.select(seconds_left):
                piece = _receive(key.fileobj)
                received[key.data] += piece
                if not piece:
                    waiting.unregister(key.fileobj)
    return {rank: pickle.loads(answer[_BYTES_OF_LENGTH:]) for rank, answer in received.items() if _is_complete(answer)}


def _receive(connection):
    """Return the next bytes of an answer, an empty string at its end and when the rank has died."""
    with suppress(OSError):
        return connection.recv(2**16)
    return b""


def _is_complete(answer):
    """Return whether an answer is complete, because the rank may have died, or the time may be over."""
    length = int.from_bytes(answer[:_BYTES_OF_LENGTH], "big")
    return len(answer) >= _BYTES_OF_LENGTH and len(answer) - _BYTES_OF_LENGTH == length
