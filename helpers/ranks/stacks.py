"""Where a rank is: a thread of the rank tells of the stacks of all its threads, also while it is blocked in C++.

A rank of this machine is asked through a named pipe and answers into a file. An engine of a cluster may be anywhere: it
is asked by a signal, which ipyparallel's nanny process passes on, and answers over ipyparallel. The thread is the same.
Below a frame of torch it tells of the arguments, too; see `helpers.ranks.arguments`.
The engine tells of its collectives, too, when another signal asks; see `helpers.ranks.recorder`.
"""

import faulthandler
import itertools
import json
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from helpers.errors import WorldError
from helpers.ranks import memory, recorder
from helpers.ranks.logs import log_to_standard_error, say
from helpers.ranks.questions import Failed

_logger = logging.getLogger(__name__)

# What stands above a stack; the first is how faulthandler begins the only one that it writes.
MAIN_THREAD, OTHER_THREAD = "Stack (most recent call first):", "Another thread:"
ARGUMENTS = "    with "  # what stands before the arguments of the frame above
ANSWER = "Stacks of all threads:"  # how each answer begins: one that was late may stand before another
FAILED = "No stacks: "  # what stands before the error of a rank that could not tell of its stacks

_SECONDS_TO_ANSWER = 1.0

_publisher = None  # of an engine that somebody else has started
_numbers = itertools.count(1)


def stacks_path(directory: str, rank: int) -> Path:
    """Return the file to which a rank writes its stacks when it is asked to."""
    return Path(directory, f"rank-{rank}.stacks")


def requests_path(directory: str, rank: int) -> Path:
    """Return the named pipe that asks a rank for its stacks: any byte does."""
    return Path(directory, f"rank-{rank}.requests")


# ---------------------------------------------------------------- in the rank


def answer_into_a_file(rank: int, directory: str) -> None:
    """From now on a request appends the stacks of all threads of this process to a file.

    While another thread keeps the lock of Python, the one that answers cannot; then SIGUSR1 appends the stack of the
    main thread. A signal could not tell of the others without the lock: RPC makes and frees threads all the time, and
    what has just been freed must not be read.
    """
    log_to_standard_error()
    path = requests_path(directory, rank)
    path.unlink(missing_ok=True)  # that of the rank before a restart
    stacks_path(directory, rank).write_bytes(b"")
    os.mkfifo(path, 0o600)
    requests = os.open(path, os.O_RDWR)  # for writing too: no end of the file when the notebook closes it
    # In one piece, so that no reader finds half of it; at the end, because the notebook empties the file.
    stacks = stacks_path(directory, rank).open("ab", buffering=0)
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=False)
    _start_to_answer(requests, lambda: stacks.write(_as_bytes(_stacks())))


def answer_over_ipyparallel() -> None:
    """From now on two signals make this engine publish something, as data of the call that it is in now.

    SIGUSR1 asks for its stacks and its memory, SIGUSR2 for its collectives. A signal just wakes the thread that
    answers. While another thread keeps the lock of Python there is no answer.
    """
    global _publisher
    log_to_standard_error()
    from ipykernel.zmqshell import ZMQInteractiveShell
    from ipyparallel.engine.datapub import ZMQDataPublisher

    of_cells = ZMQInteractiveShell.instance().data_pub
    is_first = _publisher is None
    _publisher = ZMQDataPublisher(session=of_cells.session, pub_socket=of_cells.pub_socket)
    _publisher.parent_header = of_cells.parent_header  # that of the cells is another one with each of them
    if is_first:
        for number, publish in ((signal.SIGUSR1, _publish_stacks), (signal.SIGUSR2, _publish_collectives)):
            requests, signalled = os.pipe()
            os.set_blocking(signalled, False)  # a signal never waits, even if nobody reads
            faulthandler.register(number, file=signalled, all_threads=False)
            _start_to_answer(requests, publish)


def _publish_stacks():
    said = {"number": next(_numbers), "stacks": _stacks(), "memory": memory.share(os.getpid())}
    _publisher.publish_data(said)


def _publish_collectives():
    try:
        record = recorder.record()
    except Exception as error:  # the notebook is told
        _logger.exception("the record of the collectives has failed")
        record = Failed(say(error))
    _publisher.publish_data({"number of collectives": next(_numbers), "collectives": record})


def _start_to_answer(requests, answer):
    """Start a thread that answers whenever something can be read."""

    def work():
        while os.read(requests, 2**16):
            _try(answer)

    threading.Thread(target=work, daemon=True).start()


def _try(answer):
    try:
        answer()
    except Exception:  # the thread has to live on
        _logger.exception("an answer could not be sent")


def _stacks():
    """Return the stacks of all threads, or why there are none."""
    try:
        return of_all_threads()
    except Exception as error:  # the notebook is told
        _logger.exception("the stacks have failed")
        return Failed(say(error))


def _as_bytes(stacks):
    text = f"{ANSWER}\n{FAILED}{stacks.error}\n" if isinstance(stacks, Failed) else stacks
    return text.encode(errors="replace")


def of_all_threads(with_arguments: bool = True) -> str:
    """Return the stacks in the format of faulthandler, and what torch has been called with, unless that is too much."""
    # Here, not above: the notebook imports this file, too, and has no use for torch.
    from helpers.ranks import arguments

    lines = [ANSWER]
    for thread, innermost in sys._current_frames().items():
        lines.append(MAIN_THREAD if thread == threading.main_thread().ident else OTHER_THREAD)
        for frame, number in traceback.walk_stack(innermost):
            lines.append(f'  File "{frame.f_code.co_filename}", line {number} in {frame.f_code.co_name}')
            if with_arguments and (told := arguments.of(frame)):
                lines.append(ARGUMENTS + json.dumps(told))
    return "\n".join([*lines, ""])


# ---------------------------------------------------------------- in the notebook


def from_files(directory: str, pids: dict[int, int], deaths: Callable[[], Iterable[int]]) -> dict[int, str | Failed]:
    """Ask ranks of this machine, given with their process ids; return the stacks of each that answers, or its error.

    `directory` holds their files, `deaths` tells which ranks are dead. Raises `WorldError` when the files are gone.
    """
    for rank in pids:
        _empty(stacks_path(directory, rank))
        _request(requests_path(directory, rank))
    answers = {}
    for rank, pid in pids.items():
        path = stacks_path(directory, rank)
        text = _read(path, pid)
        has_answered = MAIN_THREAD in text or FAILED in text
        if not has_answered and rank not in deaths():  # else the number may be somebody else's by now
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)
            text = _read(path, pid)
        answers[rank] = Failed(text.rpartition(FAILED)[2].strip()) if FAILED in text else text
    return answers


def _empty(path):
    """Forget earlier answers."""
    try:
        os.truncate(path, 0)
    except FileNotFoundError:
        raise WorldError(
            f"The temporary folder of this world has been removed ({path.parent}), and without it no rank can be "
            "asked. Make a new world: world = World(4)."
        ) from None


def _request(path):
    with suppress(OSError):  # nobody reads the requests of a rank that is dead
        requests = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        with open(requests, "wb", buffering=0) as file:
            file.write(b"?")


def _read(path, pid):
    """Return what a rank has written: nothing when it does not answer in time."""
    deadline = time.monotonic() + _SECONDS_TO_ANSWER
    previous, size = None, 0
    # Until there is something, and no more comes.
    while not 0 < size == previous and psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
        previous, size = size, path.stat().st_size
    return path.read_bytes().decode(errors="replace")
