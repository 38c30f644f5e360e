"""Functions that a world calls over ipyparallel in an engine that somebody else started, to make the engine a rank.

They include a side channel. The notebook cannot reach the engine through a socket, so it sends a signal, which
ipyparallel's nanny process passes on, and the engine publishes its answer over ipyparallel.
"""

import faulthandler
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ipykernel.zmqshell import ZMQInteractiveShell
from ipyparallel.engine.app import IPEngine
from ipyparallel.engine.datapub import ZMQDataPublisher

from helpers.probe import recorder, side_channel, stacks
from helpers.ranks import memory, prefork, store
from helpers.ranks.reachability import stop_listening

_owner = None  # the world to which this engine belongs
_store = None  # only rank 0 has a store
_folder = None  # the temporary folder of the ranks on this host
_errors = None  # a copy of file descriptor 2 from before it was redirected to the log
_before = None  # the engine's own settings, which `leave` restores
_publisher = None  # publishes the answers to signals

_QUESTIONS = {signal.SIGUSR1: stacks.of_this_process, signal.SIGUSR2: recorder.record}


class Owner(NamedTuple):
    """The world that owns an engine: the notebook's host, and the world's folder there, which exists while it does."""

    host: str
    folder: str


class Engine(NamedTuple):
    """An engine's description of itself: its host, its process id, and the world to which it belongs."""

    host: str
    pid: int
    owner: Owner | None


class Joined(NamedTuple):
    """A new rank's description of itself: the number of GPUs that it sees, and the path of its log."""

    gpus: int
    log: str


class _Settings(NamedTuple):
    """The settings that a world changes in an engine: environment variables, None if unset, and torch's threads."""

    environment: dict[str, str | None]
    threads: int


class Published(NamedTuple):
    """A rank's reply to a signal: the answer, or a `Failed`, and the bytes of memory that the rank uses."""

    answer: object
    memory: int


def introduce() -> Engine:
    """Return the host, the process id and the owner of this engine."""
    return Engine(socket.gethostname(), os.getpid(), _owner)


def make_folder(owner: Owner) -> str:
    """Return a folder for the temporary files of the ranks on this host, which only their user can enter.

    It is the world's own folder if this process can write there. `leave` removes it. The folder of a host on which
    every rank has died stays.
    """
    if owner.host == socket.gethostname() and os.access(owner.folder, os.W_OK):
        return owner.folder
    return tempfile.mkdtemp(prefix="world-")


def join(rank: int, environment: dict[str, str], owner: Owner, before: Owner | None) -> Joined | None:
    """Make this engine a rank of the world `owner`.

    `environment` names the folder that `make_folder` returned on this host. Return None when the engine is already a
    rank of another world, unless that world is `before`, which has ended.
    """
    global _owner, _errors, _before, _folder
    if _owner not in (None, before, owner):
        return None
    _owner = owner
    stop_listening()
    own = _settings(environment)
    os.environ.update(environment)
    tempfile.tempdir = None  # Python has cached the value of the old environment
    _remove_folder()  # of `before`
    _folder = environment["TMPDIR"]
    _answer_signals()
    recorder.watch()

    import torch

    from helpers.probe import handles

    handles.note()
    if _before is None:  # otherwise an earlier world changed the settings, and did not restore them
        _before = own
    torch.set_num_threads(1)
    path = Path(IPEngine.instance().profile_dir.log_dir, f"rank-{rank}-{socket.gethostname()}.log")
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    if _errors is None:
        _errors = os.dup(2)
    # ipykernel has taken over what C++ writes to standard error, and loses it when the process crashes.
    os.dup2(log, 2)
    os.close(log)
    return Joined(torch.cuda.device_count(), str(path))


def _answer_signals():
    """Publish the answer to each of `_QUESTIONS` when its signal arrives, as data of the call that runs in this engine.

    A signal only wakes the answering thread, so there is no answer while another thread holds the GIL.
    """
    global _publisher
    side_channel.log_to_standard_error()
    of_cells = ZMQInteractiveShell.instance().data_pub
    is_first = _publisher is None
    _publisher = ZMQDataPublisher(session=of_cells.session, pub_socket=of_cells.pub_socket)
    _publisher.parent_header = of_cells.parent_header  # each cell changes the parent of the cells' own publisher
    if is_first:
        for number in _QUESTIONS:
            signals, signalled = os.pipe()
            os.set_blocking(signalled, False)  # a signal handler must not block, even if no thread reads the pipe
            faulthandler.register(number, file=signalled, all_threads=False)
            threading.Thread(target=_publish_answers, args=[number, signals], daemon=True).start()


def _publish_answers(number, signals):
    while os.read(signals, 2**16):
        side_channel.call(_publish_answer, [number])  # logs errors instead of raising, so that the thread continues


def _publish_answer(number):
    answer = side_channel.call(_QUESTIONS[number])
    _publisher.publish_data({number.name: Published(answer, memory.share(os.getpid()))})


def open_store(address: str) -> int:
    """Start a new store in this process, in place of the old store; return its port.

    The store listens only on this address.
    """
    global _store
    _store = None
    _store = store.open_on(socket.create_server((address, 0)))
    return _store.port


def leave(owner: Owner, logs: Sequence[str]) -> None:
    """Stop being a rank of this world: end the store, and remove these logs, its own and the logs of dead neighbours.

    Remove the temporary folder. Restore the engine's environment, number of threads and standard error. The wrappers of
    torch's functions stay, because other code may have wrapped them meanwhile, but no longer do anything.
    """
    global _owner, _store, _errors
    if _owner not in (None, owner):
        return
    stop_listening()
    _owner = _store = None
    if _errors is not None:
        os.dup2(_errors, 2)
        os.close(_errors)
        _errors = None
    _give_back()
    _remove_folder()
    for log in logs:
        Path(log).unlink(missing_ok=True)


def _remove_folder():
    global _folder
    if _folder is not None:
        shutil.rmtree(_folder, ignore_errors=True)
        _folder = None


def _settings(names):
    """Return the settings of this engine: its number of threads, and the variables with these names."""
    # An engine that has not imported torch yet will import it as a rank, and then with one thread.
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch else prefork.threads_of_torch()
    return _Settings({name: os.environ.get(name) for name in names}, threads)


def _give_back():
    global _before
    if _before is None:
        return
    import torch

    from helpers import tap

    for name, value in _before.environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    tempfile.tempdir = None
    torch.set_num_threads(_before.threads)
    tap.unsubscribe_all()
    _before = None


def read(log: str) -> str:
    """Return the text of a log on this host."""
    return Path(log).read_text(errors="replace")
