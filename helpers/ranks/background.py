"""Calls in the background, which run as ranks do: on a private network, and with every child ended."""

import os
import shutil
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path

from helpers.ranks import namespaces, prefork, process_tree

_SECONDS_TO_END = 10


class Background:
    """A call of `function(*arguments)` in a process of its own, which has already imported torch on Linux.

    The call and every process that it has started end when the call returns, after this many seconds, when `end` is
    called, or when the notebook ends for any reason. The output goes to `log`. `folder`, if given, is removed by `end`
    and at the end of the notebook. `exit_code` is None until the call has ended by itself.
    """

    def __init__(self, function, arguments: tuple, log: Path, seconds: float, folder: Path | None = None):
        self.exit_code = None
        self._ended = False
        self._link, other_end = prefork.pipe(duplex=True)
        try:
            self._process = prefork.start(_watch, other_end, function, arguments, log, seconds, folder)
        except BaseException:
            self._link.close()  # ends the process, if it has started
            raise
        finally:
            other_end.close()

    def wait(self, seconds: float) -> bool:
        """Wait at most this many seconds until the call and its processes have ended; return whether they have."""
        if not self._ended and self._link.poll(seconds):
            self._ended = True
            with suppress(EOFError, ConnectionError):  # somebody has killed the process
                self.exit_code = self._link.recv()
        return self._ended

    def end(self) -> None:
        """End the call, if it has not ended, and remove its folder."""
        self._ended = True
        self._link.close()
        self._process.join(_SECONDS_TO_END)
        self._process.kill()
        self._process.join()


def _watch(link, function, arguments, log, seconds, folder):
    process_tree.become_root()
    namespaces.enter_private_network()
    try:
        process = prefork.children().Process(target=_call, args=(link, function, arguments, log))
        process.start()
        end = process_tree.end_of(process)
        ready = wait([link, end], timeout=seconds)
    finally:
        process_tree.kill_descendants()
    process.join()
    with suppress(EOFError, ConnectionError):  # the notebook has ended
        link.send(process.exitcode if end in ready else None)
        link.recv()  # wait until the notebook no longer needs the folder
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def _call(link, function, arguments, log):
    link.close()
    with log.open("wb") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    function(*arguments)
