"""The processes that hold the ranks of a world: a guard, and a host that gives the ranks a network and a store.

Everything that a world runs, except the controller that carries its messages, descends from the guard. The guard starts
the host, and the host starts the store and the ranks. When the host or the notebook ends, however that comes, the guard
kills whatever is left: also processes that a rank has started, and processes that have lost their parent.
"""

import multiprocessing
import os
import shutil
import socket
import sys
from contextlib import suppress
from multiprocessing.connection import wait
from typing import NamedTuple

from helpers.devices import HOSTS_SHARE_A_MACHINE
from helpers.errors import WorldError
from helpers.ranks import namespaces, processes, store
from helpers.ranks.family import begin_family, end_family
from helpers.ranks.places import OneNetwork
from helpers.ranks.rank import run_rank

STOP = "stop"  # what the notebook says before it lets go of a host


class Started(NamedTuple):
    """What a host says of itself when it has started its ranks; `Host` has the same attributes."""

    pid: int
    private: bool
    why_no_cables: str | None
    port: int
    cuda_devices: int
    pids: list[int]
    could_not_import: dict[str, str]


def run_guard(notebook, directory: str, arguments: tuple) -> None:
    """Start a host; when it or the notebook has ended, or the notebook says STOP, end all that is left.

    `notebook` is a connection to the notebook, which is told the exit code of a host that has ended. `arguments` are
    those of `_run_host`. When the notebook ends without saying STOP, the folder `directory` is removed, too.
    """
    begin_family()
    *_, link, deaths = arguments
    try:
        host = processes.children().Process(target=_run_host, args=[notebook, *arguments])
        host.start()
    except OSError as error:
        link.send(error)
        return
    link.close()  # the host keeps the only open copies, so the notebook sees their end when the host ends
    deaths.close()
    end = processes.end_of(host)
    notebook_has_ended = False
    try:
        if notebook in wait([notebook, end]):
            notebook.recv()
        else:
            host.join()
            notebook.send(host.exitcode)
    except (EOFError, OSError):
        notebook_has_ended = True
    end_family()
    if notebook_has_ended:
        shutil.rmtree(directory, ignore_errors=True)


def _run_host(notebook, directory, environments, count, private, link, deaths):
    namespaces.end_with_parent(multiprocessing.parent_process().pid)
    notebook.close()
    try:
        started, *served = _start(directory, environments, count, private, link, deaths)
    except Exception as error:
        link.send(_sendable(error))
        return
    with suppress(EOFError, ConnectionError):  # the notebook has ended, or has stopped its world
        link.send(started)
        _serve(link, *served)
    processes.wait_for_parent()  # which ends this process


def _start(directory, environments, count, private, link, deaths):
    """Start the store and the ranks; return what the notebook is told, the store, the ranks, and what can be asked."""
    private = private and namespaces.enter_private_network()
    hosts = _hosts(len(environments), count, private)
    store_process = _Store(hosts)
    shared = {HOSTS_SHARE_A_MACHINE: "1"} if count > 1 else {}
    environments = [{**environment, **shared} for environment in environments]
    ranks = _Ranks(directory, environments, hosts, store_process, link, deaths)
    pids = [ranks.start(rank) for rank in range(len(environments))]
    answers = {"new_store": store_process.replace, "end_rank": ranks.end, "start_rank": ranks.start}
    if hosts.why is None and count > 1:
        answers |= {"set_cable": hosts.set_cable, "pace": hosts.pace, "carried": hosts.carried}
    cuda_devices = store_process.cuda_devices()
    could_not_import = getattr(sys.modules.get("helpers.ranks.preload"), "could_not_import", {})
    told = Started(os.getpid(), private, hosts.why, store_process.port, cuda_devices, pids, could_not_import)
    return told, store_process, ranks, answers


def _serve(link, store_process, ranks, answers):
    """Answer the notebook, and tell it of the ranks that end."""
    while True:
        for ready in wait([link, *store_process.ends, *ranks.alive]):
            if ready is link:
                number, request, arguments = link.recv()
                link.send((number, _answer(answers[request], arguments)))
            elif ready in store_process.ends:
                store_process.start_again()
            else:
                ranks.tell_end(ready)


class _Ranks:
    """The processes of the ranks, children of this one: `alive` has rank and process for each end to wait for."""

    def __init__(self, directory, environments, hosts, store_process, link, deaths):
        self.alive = {}
        self._directory = directory
        self._environments = environments
        self._hosts = hosts
        self._store = store_process
        self._deaths = deaths
        self._ends = [link, deaths]  # which ranks close
        self._told = 0

    def start(self, rank) -> int:
        """Start the process of a rank, which finds the store of this moment; return its process id."""
        place = self._hosts.place(rank)
        told = store.environment(rank, len(self._environments), self._store.port, place)
        arguments = [rank, {**self._environments[rank], **told}, self._directory, self._hosts, place.host, self._ends]
        process = processes.children().Process(target=_rank, args=arguments)
        process.start()
        self.alive[processes.end_of(process)] = rank, process
        return process.pid

    def end(self, rank) -> int:
        """Kill the process of a rank, if it is there; return how many deaths have been told of."""
        for end, (other, process) in list(self.alive.items()):
            if other == rank:
                process.kill()
                self.tell_end(end)
        return self._told

    def tell_end(self, end) -> None:
        """Tell of the rank that has ended, with its exit code, unless that has been told."""
        if end in self.alive:
            rank, process = self.alive.pop(end)
            process.join()
            processes.close_end(process, end)
            self._deaths.send((rank, process.exitcode))
            self._told += 1


def _hosts(size, count, private):
    """Return the hosts: with cables where that is possible."""
    if count < 2:
        return OneNetwork(size, 1)
    if not private:
        return OneNetwork(size, count, f"they need network namespaces, and {namespaces.why_none()}")
    try:
        from helpers.ranks.cables import CabledHosts

        return CabledHosts(size, count)
    except (ImportError, OSError) as error:
        return OneNetwork(size, count, str(error))


def _answer(function, arguments):
    try:
        return function(*arguments)
    except Exception as error:  # whatever it is, the ranks live on
        return _sendable(error)


def _sendable(error):
    """Return an error that the notebook can certainly read: an exception of a library may not survive the way."""
    if type(error).__module__ in ("builtins", WorldError.__module__):
        return error
    return WorldError(f"The host of the ranks raised {type(error).__name__}: {error}")


def _rank(rank, environment, directory, hosts, host, ends):
    for end in ends:
        end.close()  # the notebook shall see their end when the host ends
    namespaces.end_with_parent(multiprocessing.parent_process().pid)
    hosts.enter(host)
    run_rank(rank, environment, directory)


class _Store:
    """A process with a TCPStore on the first host, where all ranks reach it at `port`.

    `ends` has what to wait for until the store has ended; then `start_again` starts one at the same port.
    """

    def __init__(self, hosts):
        self._hosts = hosts
        self._start(port=0)

    def cuda_devices(self) -> int:
        """Wait until the store is there, and return how many CUDA devices it sees; raise the error of its start."""
        answer = self._ready.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def replace(self) -> int:
        """Start a fresh store in place of the old one, and return its port."""
        self._process.kill()
        self._forget()
        self._start(port=0)
        self.cuda_devices()
        return self.port

    def start_again(self) -> None:
        """Start a fresh store where the ranks look for the one that has been killed."""
        if not self._process.is_alive():  # else it has been replaced meanwhile
            self._forget()
            with suppress(OSError, EOFError, RuntimeError):  # somebody has taken the port; `replace` takes another one
                self._start(self.port)
                self.cuda_devices()

    def _start(self, port):
        children = processes.children()
        with self._hosts.inside(0):
            listener = socket.create_server((self._hosts.master, port))
        self._ready, sender = children.Pipe(duplex=False)
        self._process = children.Process(target=_store, args=[self._hosts, listener, sender])
        self._process.start()
        self.ends = [processes.end_of(self._process)]
        sender.close()
        with listener:
            self.port = listener.getsockname()[1]

    def _forget(self):
        self._process.join()
        while self.ends:
            processes.close_end(self._process, self.ends.pop())


def _store(hosts, listener, ready):
    namespaces.end_with_parent(multiprocessing.parent_process().pid)
    hosts.enter(0)
    store.serve(listener, ready)
