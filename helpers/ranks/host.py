"""The host of a world's ranks: a process that gives them a network of their own and a store, and outlives none of them.

Everything that a world runs, except the controller that carries its messages, descends from its host. The host learns
of the notebook's end, however that comes, by the end of the pipe between the two; then it kills its descendants, also
those that a rank has started and those whose parent is gone.
"""

import multiprocessing
import shutil
import socket
from contextlib import suppress
from multiprocessing.connection import wait

from helpers.devices import HOSTS_SHARE_A_MACHINE
from helpers.errors import WorldError
from helpers.ranks import namespaces, processes, store
from helpers.ranks.family import begin_family, end_family
from helpers.ranks.places import OneNetwork
from helpers.ranks.rank import run_rank

_SECONDS_TO_END = 5
_STOP = "stop"


class Host:
    """A host with one rank for each of these environments, to which the host adds what torchrun would tell a rank.

    With `hosts` it plays that many hosts, each with as many ranks; `why_no_cables` says why they have no cables between
    them, and is None when they have. `private` asks for a network that no other process of the machine can reach, where
    the system allows it; afterwards it says whether the host has one. `directory` is the private folder of the world;
    the host removes it, too, when the notebook has ended without a word. Raises `WorldError` when the host does not
    start.
    """

    def __init__(self, directory: str, environments: list[dict[str, str]], *, hosts: int = 1, private: bool = True):
        self._requests = 0
        self._link, link = processes.pipe(duplex=True)
        self.deaths, deaths = processes.pipe()  # receives (rank, exit code), and ends when the host does
        try:
            self._process = processes.start(_run, directory, environments, hosts, private, link, deaths)
            link.close()
            deaths.close()
            self.private, self.why_no_cables, self.port, self.cuda_devices, self.pids = self._link.recv()
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
        return self._ask("new_store")

    def end_rank(self, rank: int) -> int:
        """Kill the process of a rank, if it has not ended; return how many deaths `deaths` has told of by then."""
        return self._ask("end_rank", rank)

    def start_rank(self, rank: int) -> None:
        """Start a new process for a rank whose old one has ended."""
        self.pids[rank] = self._ask("start_rank", rank)

    def set_cable(self, host: str, plugged: bool) -> None:
        """Put the cable of a host into the switch, or take it out."""
        self._ask("set_cable", host, plugged)

    def pace(self, bits_per_second: float, delay: float, loss: float) -> None:
        """Give every cable this rate, delay and loss; raise OSError when the kernel cannot do it."""
        self._ask("pace", bits_per_second, delay, loss)

    def carried(self) -> dict[str, tuple[int, int, int]]:
        """Return for each host the bytes that its loopback has carried, and its cable out of the host and into it."""
        return self._ask("carried")

    def _ask(self, request, *arguments):
        """Have the host do something; return what it answers, or raise the OSError that it answers."""
        self._requests += 1
        try:
            self._link.send((self._requests, request, arguments))
            number, answer = self._link.recv()
            while number != self._requests:  # the answer to a request that was interrupted
                number, answer = self._link.recv()
        except (EOFError, ConnectionError):
            raise WorldError(
                "The process that the ranks descend from has ended. Call world.restart() for working ranks."
            ) from None
        if isinstance(answer, OSError):
            raise answer
        return answer

    def stop(self) -> None:
        """End the ranks and everything that they have started; once stopped, it does nothing."""
        with suppress(OSError):
            self._link.send(_STOP)
        self._link.close()
        self._process.join(_SECONDS_TO_END)
        self._process.kill()
        self._process.join()


def _run(directory, environments, hosts, private, link, deaths):
    begin_family()
    try:
        _serve(directory, environments, hosts, private, link, deaths)
    except (EOFError, BrokenPipeError):  # nobody is at the other end of the link, at whichever moment that was noticed
        end_family()
        shutil.rmtree(directory, ignore_errors=True)
    finally:
        end_family()


def _serve(directory, environments, count, private, link, deaths):
    private = private and namespaces.enter_private_network()
    hosts = _hosts(len(environments), count, private)
    store_process = _Store(hosts)
    shared = {HOSTS_SHARE_A_MACHINE: "1"} if count > 1 else {}
    environments = [{**environment, **shared} for environment in environments]
    ranks = _Ranks(directory, environments, hosts, store_process, link, deaths)
    pids = [ranks.start(rank) for rank in range(len(environments))]
    link.send((private, hosts.why, store_process.port, store_process.cuda_devices(), pids))
    answers = {"new_store": store_process.replace, "end_rank": ranks.end, "start_rank": ranks.start}
    if hosts.why is None and count > 1:
        answers |= {"set_cable": hosts.set_cable, "pace": hosts.pace, "carried": hosts.carried}
    while True:
        for ready in wait([link, *ranks.alive]):
            if ready is not link:
                ranks.tell_end(ready)
                continue
            message = link.recv()
            if message == _STOP:
                return
            number, request, arguments = message
            link.send((number, _answer(answers[request], arguments)))


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
    except OSError as error:
        return error


def _rank(rank, environment, directory, hosts, host, ends):
    for end in ends:
        end.close()  # the notebook shall see their end when the host ends
    namespaces.end_with_parent(multiprocessing.parent_process().pid)
    hosts.enter(host)
    run_rank(rank, environment, directory)


class _Store:
    """A process with a TCPStore on the first host, where all ranks reach it at `port`."""

    def __init__(self, hosts):
        self._hosts = hosts
        self._start()

    def cuda_devices(self) -> int:
        """Wait until the store is there, and return how many CUDA devices it sees."""
        return self._ready.recv()

    def replace(self) -> int:
        """Start a fresh store in place of the old one, and return its port."""
        self._process.kill()
        self._process.join()
        self._start()
        self._ready.recv()
        return self.port

    def _start(self):
        children = processes.children()
        with self._hosts.inside(0):
            listener = socket.create_server((self._hosts.master, 0))
        self._ready, sender = children.Pipe(duplex=False)
        self._process = children.Process(target=_store, args=[self._hosts, listener, sender])
        self._process.start()
        sender.close()
        with listener:
            self.port = listener.getsockname()[1]


def _store(hosts, listener, ready):
    namespaces.end_with_parent(multiprocessing.parent_process().pid)
    hosts.enter(0)
    store.serve(listener, ready)
