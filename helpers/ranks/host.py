"""The notebook's side of a host: the notebook starts it, hears of the deaths of ranks, and asks it for changes."""

from contextlib import suppress

from helpers.errors import WorldError
from helpers.ranks import processes
from helpers.ranks.hosting import STOP, run_guard

_SECONDS_TO_START = 120  # torch may be imported from a slow disk
_SECONDS_TO_ANSWER = 20
_SECONDS_TO_END = 5


class Host:
    """A host with one rank for each of these environments, to which the host adds what torchrun would tell a rank.

    With `hosts` it plays that many hosts, each with as many ranks; `why_no_cables` says why they have no cables between
    them, and is None when they have. `private` asks for a network that no other process of the machine can reach, where
    the system allows it; afterwards it says whether the host has one. `directory` is the private folder of the world;
    it is removed, too, when the notebook ends without calling `stop`. `pid` is the process id of the host.
    `could_not_import` has the modules that could not be imported for a world, and why. Raises `WorldError` when the
    host does not start.
    """

    def __init__(self, directory: str, environments: list[dict[str, str]], *, hosts: int = 1, private: bool = True):
        self._requests = 0
        self._guard, guard = processes.pipe(duplex=True)
        self._link, link = processes.pipe(duplex=True)
        self.deaths, deaths = processes.pipe()  # receives (rank, exit code), and ends when the host does
        try:
            arguments = directory, environments, hosts, private, link, deaths
            self._process = processes.start(run_guard, guard, directory, arguments)
            for end in (guard, link, deaths):
                end.close()
            started = self._hear_of_the_start()
        except BaseException:
            self._let_go()
            raise
        self.pid, self.private, self.why_no_cables, *rest = started
        self.port, self.cuda_devices, self.pids, self.could_not_import = rest

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

    def carried(self) -> dict[str, tuple[int, int, int, dict[int, int]]]:
        """Return what `CabledHosts.carried` counts for each host: loopback, cable out and in, and sent again."""
        return self._ask("carried")

    def stop(self) -> None:
        """End the ranks and everything that they have started; once stopped, it does nothing."""
        self._let_go()
        self._process.join(_SECONDS_TO_END)
        self._process.kill()
        self._process.join()

    def _let_go(self):
        """Have the guard end everything."""
        with suppress(OSError):  # it has ended, or has been told before
            self._guard.send(STOP)
        self._guard.close()
        self._link.close()

    def _hear_of_the_start(self):
        """Return what the host says when it has started its ranks; raise `WorldError` when it does not."""
        try:
            started = self._receive(_SECONDS_TO_START)
        except TimeoutError:
            why = f"Their host did not answer for {_SECONDS_TO_START} s. Try again."
        except EOFError:
            why = self._say_how_it_ended()
        else:
            if not isinstance(started, Exception):
                return started
            why = _say_why(started)
        raise WorldError(f"The ranks did not start. {why}")

    def _ask(self, request, *arguments):
        """Have the host do something; return its answer, or raise the error that it answers with.

        Raises `WorldError` when the host has ended, and when it does not answer in time.
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
        """Say how a host ended that never sent anything: the guard sends its exit code."""
        with suppress(EOFError, OSError):
            if self._guard.poll(_SECONDS_TO_END) and (exit_code := self._guard.recv()) < 0:
                return f"Their host was killed (signal {-exit_code}). Try again."
        return "Their host ended while it started. Does `import torch` work in this notebook?"


def _say_why(error):
    """Say why a host could not start its ranks, and what to do."""
    if isinstance(error, BlockingIOError):
        return processes.NO_MORE_PROCESSES
    if isinstance(error, OSError | WorldError):
        return f"Their host raised {type(error).__name__}: {error}"
    return f"Does `import torch` work in this notebook? Their store could not be made: {error}"
