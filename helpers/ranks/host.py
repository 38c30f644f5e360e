"""The host of a world's ranks: a process that gives them a network of their own and a store, and outlives none of them.

Everything that a world runs, except the controller that carries its messages, descends from its host. The host learns
of the notebook's end, however that comes, by the end of the pipe between the two; then it kills its descendants, also
those that a rank has started and those whose parent is gone.
"""

import multiprocessing
import os
import shutil
import socket
import subprocess
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path

import psutil

from helpers.errors import WorldError
from helpers.ranks import namespaces, processes, store
from helpers.ranks.rank import run_rank

_SECONDS_TO_END = 5
_STOP = "stop"


class Host:
    """A host with one rank for each of these environments, to which the host adds what torchrun would tell a rank.

    `private` asks for a network that no other process of the machine can reach, where the system allows it; afterwards
    it says whether the host has one. `directory` is the private folder of the world; the host removes it, too, when the
    notebook has ended without a word. Raises `WorldError` when the host does not start.
    """

    def __init__(self, directory: str, environments: list[dict[str, str]], *, private: bool = True):
        self._requests = 0
        self._link, link = processes.pipe(duplex=True)
        self.deaths, deaths = processes.pipe()  # receives (rank, exit code), and ends when the host does
        try:
            self._process = processes.start(_run, directory, environments, private, link, deaths)
            link.close()
            deaths.close()
            self.private, self.port, self.cuda_devices, self.pids = self._link.recv()
        except EOFError:
            self._link.close()
            raise WorldError("The ranks did not start. Does `import torch` work in this notebook?") from None
        except BaseException:
            self._link.close()  # so the host ends
            raise

    @property
    def pid(self) -> int:
        """The process id of the host."""
        return self._process.pid

    def new_store(self) -> int:
        """Start a fresh store in place of the old one, and return its port."""
        self._requests += 1
        self._link.send(self._requests)
        number, port = self._link.recv()
        while number != self._requests:  # the answer to a request that was interrupted
            number, port = self._link.recv()
        return port

    def stop(self) -> None:
        """End the ranks and everything that they have started; once stopped, it does nothing."""
        with suppress(OSError):
            self._link.send(_STOP)
        self._link.close()
        self._process.join(_SECONDS_TO_END)
        self._process.kill()
        self._process.join()


def run_command(command: list[str], environment: dict[str, str], log: Path, seconds: float) -> int | None:
    """Run a command as a host runs its ranks: on a private network, with nothing left of what it has started.

    Its output goes to `log`. Return its exit code, or None when it was ended because its time was out.
    """
    link, other_end = processes.pipe(duplex=True)
    with link:
        process = processes.start(_run_command, other_end, command, environment, log)
        other_end.close()
        code = link.recv() if link.poll(seconds) else None
    process.join(_SECONDS_TO_END)
    return code


def _run(directory, environments, private, link, deaths):
    _begin()
    try:
        _serve(directory, environments, private, link, deaths)
    except (EOFError, BrokenPipeError):  # nobody is at the other end of the link, at whichever moment that was noticed
        _end_descendants()
        shutil.rmtree(directory, ignore_errors=True)
    finally:
        _end_descendants()


def _serve(directory, environments, private, link, deaths):
    private = private and namespaces.enter_private_network()
    children = processes.children()
    port, store_process, devices = _start_store(children)
    ranks = []
    for rank, environment in enumerate(environments):
        environment = {**environment, **store.environment(rank, len(environments), port)}
        ranks.append(children.Process(target=_rank, args=[rank, environment, directory, [link, deaths]]))
        ranks[-1].start()
    link.send((private, port, devices.recv(), [rank.pid for rank in ranks]))
    alive = {processes.end_of(process): rank for rank, process in enumerate(ranks)}
    while True:
        for ready in wait([link, *alive]):
            if ready is not link:
                rank = alive.pop(ready)
                ranks[rank].join()
                deaths.send((rank, ranks[rank].exitcode))
                continue
            request = link.recv()
            if request == _STOP:
                return
            store_process.kill()
            store_process.join()
            port, store_process, devices = _start_store(children)
            devices.recv()
            link.send((request, port))


def _rank(rank, environment, directory, ends):
    for end in ends:
        end.close()  # the notebook shall see their end when the host ends
    namespaces.end_with_parent(multiprocessing.parent_process().pid)
    run_rank(rank, environment, directory)


def _start_store(children):
    listener = socket.create_server(("127.0.0.1", 0))
    receiver, sender = children.Pipe(duplex=False)
    process = children.Process(target=_store, args=[listener, sender])
    process.start()
    sender.close()
    with listener:
        return listener.getsockname()[1], process, receiver


def _store(listener, ready):
    namespaces.end_with_parent(multiprocessing.parent_process().pid)
    store.serve(listener, ready)


def _run_command(link, command, environment, log):
    _begin()
    namespaces.enter_private_network()
    try:
        with log.open("wb") as output:
            process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
            while process.poll() is None and not link.poll(0.02):
                pass
        code = process.poll()
    finally:
        _end_descendants()
    with suppress(BrokenPipeError):  # the caller has stopped waiting
        link.send(code)


def _begin():
    os.setsid()  # an Interrupt of the notebook, or its end by force, goes to its whole process group
    namespaces.adopt_orphans()


def _end_descendants():
    this = psutil.Process()
    while alive := [child for child in this.children(recursive=True) if not _is_over(child)]:
        for child in alive:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(alive, timeout=_SECONDS_TO_END)


def _is_over(process):
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
