"""The supervisor, the parent of all ranks of a world: it gives them a network and a store, and reports their deaths.

All processes of a world, except the controller that carries its messages, descend from a guard. The guard starts the
supervisor, and the supervisor starts the store and the ranks. When the supervisor or the notebook ends, for any reason,
the guard kills the remaining processes, including processes that a rank has started and orphans.
"""

import os
import shutil
import sys
from contextlib import suppress
from multiprocessing.connection import wait
from typing import NamedTuple

from helpers.devices import HOSTS_SHARE_A_MACHINE
from helpers.errors import WorldError
from helpers.ranks import namespaces, prefork, process_tree, store
from helpers.ranks.rank import run_rank
from helpers.ranks.topology import OneNetwork

_STOP = "stop"  # the notebook sends this text to the guard before it closes the connection
_SECONDS_TO_START = 120  # torch may be imported from a slow disk
_SECONDS_TO_ANSWER = 20
_SECONDS_TO_END = 5


class Started(NamedTuple):
    """The first message of a supervisor, after it has started its ranks; `Supervisor` has the same attributes."""

    pid: int
    private: bool
    why_no_cables: str | None
    port: int
    cuda_devices: int
    pids: list[int]
    could_not_import: dict[str, str]


# ---------------------------------------------------------------- in the notebook


class Supervisor:
    """A running supervisor, with one rank for each of `environments`, to which it adds the variables of torchrun.

    `hosts` is the number of hosts, which have equal numbers of ranks. `why_no_cables` says why there are no cables
    between the hosts; it is None when there are cables, and when there is only one host. The argument `private`
    requests a network that no other process of the machine can reach, if the system allows it; the attribute `private`
    says whether there is such a network.
    `directory` is the private folder of the world; the guard removes it when the notebook ends without calling `stop`.
    `pid` is the process id of the supervisor. `could_not_import` has the modules that could not be imported for a
    world, with the errors. Raises `WorldError` when the supervisor does not start.
    """

    def __init__(self, directory: str, environments: list[dict[str, str]], *, hosts: int = 1, private: bool = True):
        self._requests = 0
        self._guard, guard = prefork.pipe(duplex=True)
        self._link, link = prefork.pipe(duplex=True)
        self.deaths, deaths = prefork.pipe()  # receives (rank, exit code), and closes when the supervisor ends
        try:
            arguments = directory, environments, hosts, private, link, deaths
            self._process = prefork.start(run_guard, guard, directory, arguments)
            for end in (guard, link, deaths):
                end.close()
            started = self._wait_for_start()
        except BaseException:
            self._let_go()
            raise
        self.pid, self.private, self.why_no_cables, *rest = started
        self.port, self.cuda_devices, self.pids, self.could_not_import = rest

    def new_store(self) -> int:
        """Start a new store in place of the old store, and return its port."""
        return self._ask("new_store")

    def end_rank(self, rank: int) -> int:
        """Kill the process of a rank, if it has not ended; return the number of deaths sent to `deaths` so far."""
        return self._ask("end_rank", rank)

    def start_rank(self, rank: int) -> None:
        """Start a new process for a rank whose old process has ended."""
        self.pids[rank] = self._ask("start_rank", rank)

    def set_cable(self, host: str, plugged: bool) -> None:
        """Plug the cable of a host into the switch, or unplug it."""
        self._ask("set_cable", host, plugged)

    def pace(self, bits_per_second: float, delay: float, loss: float) -> None:
        """Set the rate, delay and loss of every cable; raise OSError when the kernel cannot do this."""
        self._ask("pace", bits_per_second, delay, loss)

    def carried(self) -> dict[str, tuple[int, int, int, dict[int, int]]]:
        """Return what `CabledHosts.carried` counts for each host: loopback, cable out and in, and retransmissions."""
        return self._ask("carried")

    def stop(self) -> None:
        """End the ranks and every process that they have started; a second call does nothing."""
        self._let_go()
        self._process.join(_SECONDS_TO_END)
        self._process.kill()
        self._process.join()

    def _let_go(self):
        """Tell the guard to end all processes."""
        with suppress(OSError):  # the guard has ended, or has received `_STOP` before
            self._guard.send(_STOP)
        self._guard.close()
        self._link.close()

    def _wait_for_start(self):
        """Return the first message of the supervisor; raise `WorldError` when its ranks do not start."""
        try:
            started = self._receive(_SECONDS_TO_START)
        except TimeoutError:
            why = f"Their supervisor did not answer for {_SECONDS_TO_START} s. Try again."
        except EOFError:
            why = self._say_how_it_ended()
        else:
            if not isinstance(started, Exception):
                return started
            why = _say_why(started)
        raise WorldError(f"The ranks did not start. {why}")

    def _ask(self, request, *arguments):
        """Send the supervisor a request; return its answer, or raise the error with which it answers.

        Raises `WorldError` when the supervisor has ended, and when it does not answer in time.
        """
        self._requests += 1
        try:
            self._link.send((self._requests, request, arguments))
            number, answer = self._receive(_SECONDS_TO_ANSWER)
            while number != self._requests:  # the answer to a request that was interrupted
                number, answer = self._receive(_SECONDS_TO_ANSWER)
        except TimeoutError:
            raise WorldError(
                f"The process that the ranks descend from has not answered for {_SECONDS_TO_ANSWER} s. "
                "Call world.restart() for working ranks."
            ) from None
        except (EOFError, OSError):
            raise WorldError(
                "The process that the ranks descend from has ended. Call world.restart() for working ranks."
            ) from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _receive(self, seconds):
        if not self._link.poll(seconds):
            raise TimeoutError
        return self._link.recv()

    def _say_how_it_ended(self):
        """Return a sentence on how a supervisor ended before its first message; the guard sends its exit code."""
        with suppress(EOFError, OSError):
            if self._guard.poll(_SECONDS_TO_END) and (exit_code := self._guard.recv()) < 0:
                return f"Their supervisor was killed (signal {-exit_code}). Try again."
        return "Their supervisor ended during its start. Does `import torch` work in this notebook?"


def _say_why(error):
    """Return why a supervisor could not start its ranks, and what to do."""
    if isinstance(error, BlockingIOError):
        return prefork.NO_MORE_PROCESSES
    if isinstance(error, OSError | WorldError):
        return f"Their supervisor raised {type(error).__name__}: {error}"
    return f"Their store could not be made: {error}. Does `import torch` work in this notebook?"


# ---------------------------------------------------------------- in the guard and the supervisor


def run_guard(notebook, directory: str, arguments: tuple) -> None:
    """Start a supervisor; kill all descendants when it or the notebook ends, or when the notebook sends `_STOP`.

    `notebook` is a connection to the notebook, which receives the exit code of a supervisor that has ended. `arguments`
    are passed on to `_run_supervisor`. When the notebook ends without `_STOP`, remove the folder `directory` as well.
    """
    process_tree.become_root()
    *_, link, deaths = arguments
    try:
        supervisor = prefork.children().Process(target=_run_supervisor, args=[notebook, *arguments])
        supervisor.start()
    except OSError as error:
        link.send(error)
        return
    link.close()  # the supervisor has the only open copies, so the notebook sees when the supervisor ends
    deaths.close()
    end = process_tree.end_of(supervisor)
    notebook_has_ended = False
    try:
        if notebook in wait([notebook, end]):
            notebook.recv()
        else:
            supervisor.join()
            notebook.send(supervisor.exitcode)
    except (EOFError, OSError):
        notebook_has_ended = True
    process_tree.kill_descendants()
    if notebook_has_ended:
        shutil.rmtree(directory, ignore_errors=True)


def _run_supervisor(notebook, directory, environments, count, private, link, deaths):
    process_tree.end_with_parent()
    notebook.close()
    try:
        started, *served = _start(directory, environments, count, private, link, deaths)
    except Exception as error:
        link.send(_sendable(error))
        return
    with suppress(EOFError, ConnectionError):  # the notebook has ended, or has stopped its world
        link.send(started)
        _serve(link, *served)
    process_tree.wait_for_parent()  # the guard kills this process and the ranks


def _start(directory, environments, count, private, link, deaths):
    """Start the store and the ranks; return the first message, the store, the ranks, and the answers to requests."""
    private = private and namespaces.enter_private_network()
    hosts = _make_hosts(len(environments), count, private)
    store_process = store.StoreProcess(hosts)
    shared = {HOSTS_SHARE_A_MACHINE: "1"} if count > 1 else {}
    environments = [{**environment, **shared} for environment in environments]
    ranks = _Ranks(directory, environments, hosts, store_process, link, deaths)
    pids = [ranks.start(rank) for rank in range(len(environments))]
    answers = {"new_store": store_process.replace, "end_rank": ranks.end, "start_rank": ranks.start}
    if hosts.why is None and count > 1:
        answers |= {"set_cable": hosts.set_cable, "pace": hosts.pace, "carried": hosts.carried}
    cuda_devices = store_process.cuda_devices()
    could_not_import = getattr(sys.modules.get("helpers.ranks.preload"), "could_not_import", {})
    started = Started(os.getpid(), private, hosts.why, store_process.port, cuda_devices, pids, could_not_import)
    return started, store_process, ranks, answers


def _serve(link, store_process, ranks, answers):
    """Answer the requests of the notebook, and report the ranks that end."""
    while True:
        for ready in wait([link, *store_process.ends, *ranks.alive]):
            if ready is link:
                number, request, arguments = link.recv()
                link.send((number, _answer(answers[request], arguments)))
            elif ready in store_process.ends:
                store_process.start_again()
            else:
                ranks.report_end(ready)


class _Ranks:
    """The processes of the ranks, children of this process; `alive` maps the object to wait for to rank and process."""

    def __init__(self, directory, environments, hosts, store_process, link, deaths):
        self.alive = {}
        self._directory = directory
        self._environments = environments
        self._hosts = hosts
        self._store = store_process
        self._deaths = deaths
        self._ends = [link, deaths]  # ranks close their copies of these connections
        self._reported = 0

    def start(self, rank) -> int:
        """Start the process of a rank, which uses the current store; return its process id."""
        place = self._hosts.place(rank)
        torchrun_variables = store.environment(rank, len(self._environments), self._store.port, place)
        environment = {**self._environments[rank], **torchrun_variables}
        arguments = [rank, environment, self._directory, self._hosts, place.host, self._ends]
        process = prefork.children().Process(target=_run_rank, args=arguments)
        process.start()
        self.alive[process_tree.end_of(process)] = rank, process
        return process.pid

    def end(self, rank) -> int:
        """Kill the process of a rank, if it has not ended; return the number of deaths reported so far."""
        for end, (other, process) in list(self.alive.items()):
            if other == rank:
                process.kill()
                self.report_end(end)
        return self._reported

    def report_end(self, end) -> None:
        """Report the rank that has ended, with its exit code, unless it has been reported before."""
        if end in self.alive:
            rank, process = self.alive.pop(end)
            process.join()
            process_tree.close_end(process, end)
            self._deaths.send((rank, process.exitcode))
            self._reported += 1


def _make_hosts(size, count, private):
    """Return the hosts, with cables between them if the system allows them."""
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
    except Exception as error:  # the supervisor must continue, because the ranks end with it
        return _sendable(error)


def _sendable(error):
    """Return an error that the notebook can unpickle, because a library's exception might not be unpicklable there."""
    if type(error).__module__ in ("builtins", WorldError.__module__):
        return error
    return WorldError(f"The supervisor of the ranks raised {type(error).__name__}: {error}")


def _run_rank(rank, environment, directory, hosts, host, ends):
    for end in ends:
        end.close()  # so that the notebook sees when the supervisor ends
    process_tree.end_with_parent()
    hosts.enter(host)
    run_rank(rank, environment, directory)
