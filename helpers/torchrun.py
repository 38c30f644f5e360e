"""Run torchrun on a script that the notebook has as text, on a private network or otherwise on the loopback."""

import math
import os
import re
import socket
import tempfile
import time
from contextlib import suppress
from multiprocessing.util import get_temp_dir
from pathlib import Path

import psutil

from helpers.errors import WorldError
from helpers.ranks import prefork
from helpers.ranks.background import Background
from helpers.ranks.topology import LOOPBACK, LOOPBACK_ADDRESS

_SECONDS_TO_RUN = 120
_current = None  # the job that may be running


class Job:
    """A script in the background, run as `torchrun --nproc-per-node=RANKS script.py` runs it.

    Further arguments are environment variables, as in `TORCH_DISTRIBUTED_DEBUG="DETAIL"`, and `variables` has them. The
    processes of the job run in `folder` and write their files there. After two minutes the job is ended, and its folder
    stays. The next job, `end`, and the end of the notebook for any reason all end the job and remove its folder.
    """

    def __init__(self, script: str, ranks: int, **variables: str):
        global _current
        if _current is not None:
            _current.end()
        self.script = script
        self.ranks = ranks
        self.variables = variables
        self._printed = -math.inf  # when `wait_for` has last found its text
        prefork.warm_up()  # starts the fork server, which removes the folder if the notebook is killed
        self.folder = Path(tempfile.mkdtemp(prefix="job-", dir=get_temp_dir())).resolve()
        self._log = self.folder / "torchrun.log"
        temporary = self.folder / "temporary"
        temporary.mkdir()
        self.folder.joinpath("script.py").write_text(script)
        given = {"GLOO_SOCKET_IFNAME": LOOPBACK, "TMPDIR": str(temporary), **prefork.at_import(), **variables}
        arguments = (self.folder, ranks, {**os.environ, **given})
        self._running = Background(_agent, arguments, self._log, _SECONDS_TO_RUN, self.folder)
        _current = self

    def pids(self) -> list[int]:
        """Return the process ids of the running ranks, in the order of the ranks."""
        pids = {}
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.cwd() == str(self.folder) and "RANK" in (variables := process.environ()):
                    pids.setdefault(int(variables["RANK"]), process.pid)  # a rank is listed before its children
        return [pids[rank] for rank in sorted(pids)]

    def log(self, rank: int, name: str = "stdout.log") -> str:
        """Return the text of a file that torchrun writes for a rank: stdout.log, stderr.log or error.json."""
        files = list(self.folder.glob(f"logs/*/attempt_0/{rank}/{name}"))
        return files[0].read_text() if files else ""

    def wait_for(self, text: str, seconds: float = 60) -> None:
        """Wait until every rank has printed this text; raise `WorldError` if some rank does not."""
        deadline = time.monotonic() + seconds
        ended = False
        while not all(text in self.log(rank) for rank in range(self.ranks)):
            if ended or time.monotonic() > deadline:
                raise WorldError(f"Not every rank has printed {text!r}:\n{self._last_words()}")
            ended = self.wait(0.05)  # read the logs once more after the end, because a job may print just before it
        self._printed = time.monotonic()

    def wait(self, seconds: float) -> bool:
        """Wait at most this many seconds for the end of the job; return whether it has ended."""
        return self._running.wait(seconds)

    @property
    def exit_code(self) -> int | None:
        """The exit code of torchrun, None when it has not ended by itself."""
        self.wait(0)
        return self._running.exit_code

    def report(self) -> str:
        """Return the report that torchrun prints at the end if a rank failed, an empty text if no rank failed."""
        match = re.search(r"^=+$.*^=+$", self._log.read_text(), re.M | re.S)
        return match[0].replace(f"{self.folder}/", "") if match else ""

    def end(self) -> None:
        """End the job, and remove its folder."""
        self._printed = -math.inf
        self._running.end()

    def _last_words(self):
        errors = "".join(self.log(rank, "stderr.log") for rank in range(self.ranks))
        return "\n".join((errors or self._log.read_text()).splitlines()[-10:])


def hanging(script: str, ranks: int, text: str, seconds: float, **variables: str) -> Job:
    """Return a job of this script in which every rank has printed `text` at most this many seconds ago.

    It is the last job, if that has the same script, ranks and variables and `text` is recent, and a new job otherwise.
    """
    job = _current
    wanted = (script, ranks, variables)
    if job is None or (job.script, job.ranks, job.variables) != wanted or time.monotonic() > job._printed + seconds:
        job = Job(script, ranks, **variables)
        job.wait_for(text)
    return job


def torchrun(script: str, ranks: int) -> list[str]:
    """Run a script as `torchrun --nproc-per-node=RANKS` does, and return the output of each rank, in rank order.

    End every process that the script has started. Raises `WorldError` with the end of the output when the script fails,
    and without it when the script takes longer than two minutes.
    """
    job = Job(script, ranks)
    try:
        if _code(job) != 0:
            raise WorldError(f"The script failed under torchrun:\n{job._last_words()}")
        return [job.log(rank) for rank in range(ranks)]
    finally:
        job.end()


def _code(job):
    job.wait(_SECONDS_TO_RUN)
    if job.exit_code is None:
        raise WorldError(f"The script was not done after {_SECONDS_TO_RUN} s.")
    return job.exit_code


def _agent(folder, ranks, environment):
    """Run torchrun for a job, in this process."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    tempfile.tempdir = environment["TMPDIR"]  # Python may have cached the old value
    from torch.distributed import TCPStore, run

    # By default torchrun's store listens on every interface. torchrun uses a store that its process already has at the
    # same port.
    listener = socket.create_server((LOOPBACK_ADDRESS, 0))
    port = listener.getsockname()[1]
    descriptor = listener.detach()
    store = TCPStore(
        LOOPBACK_ADDRESS, port, is_master=True, multi_tenant=True, wait_for_workers=False, master_listen_fd=descriptor
    )
    options = [f"--master-port={port}", f"--nproc-per-node={ranks}", "--redirects=3", f"--log-dir={folder / 'logs'}"]
    run.main([*options, "script.py"])
    del store  # the ranks needed it until now
