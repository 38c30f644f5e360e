"""torchrun for a script that the notebook holds as text, on a network of its own or else on the loopback."""

import os
import sys
import tempfile
from pathlib import Path

from helpers.errors import WorldError
from helpers.ranks.host import run_command
from helpers.ranks.places import LOOPBACK

_SECONDS_TO_RUN = 120
# By itself torchrun hosts its store on every interface. It takes one that this process has at the same port already.
_LAUNCHER = """
import socket, sys
from torch.distributed import TCPStore, run

listener = socket.create_server(("127.0.0.1", 0))
port = listener.getsockname()[1]
store = TCPStore(
    "127.0.0.1", port, is_master=True, multi_tenant=True, wait_for_workers=False, master_listen_fd=listener.detach()
)
run.main([f"--master-port={port}", *sys.argv[1:]])
"""


def torchrun(script: str, ranks: int) -> list[str]:
    """Run a script as `torchrun --nproc-per-node=RANKS` does, and return what each rank prints, in their order.

    Nothing that it has started is left. Raises `WorldError` with the end of the output when the script fails or takes
    longer than two minutes.
    """
    with tempfile.TemporaryDirectory() as folder:
        code, said = _run(script, ranks, folder)
        if code != 0:
            logs = "".join(log.read_text() for log in sorted(Path(folder).rglob("stderr.log")))
            tail = "\n".join((logs or said).splitlines()[-10:])
            raise WorldError(f"The script failed under torchrun:\n{tail}")
        # One folder for each local rank: .../0/stdout.log, .../1/stdout.log, ...
        logs = sorted(Path(folder).rglob("stdout.log"), key=lambda log: int(log.parent.name))
        return [log.read_text() for log in logs]


def summary_of_failure(script: str, ranks: int) -> str:
    """Run a script that fails as `torchrun` does, and return the summary that torchrun prints in the end.

    Raises `WorldError` when the script does not fail.
    """
    with tempfile.TemporaryDirectory() as folder:
        code, said = _run(script, ranks, folder)
    if code == 0:
        raise WorldError("The script has not failed.")
    rule = "=" * 60
    return said[said.find(rule) : said.rfind(rule)].replace(f"{folder}/", "") + rule


def _run(script, ranks, folder):
    """Run a script in this folder; return the exit code of torchrun, and what it says itself."""
    path = Path(folder, "script.py")
    path.write_text(script)
    options = [f"--nproc-per-node={ranks}", "--redirects=3", f"--log-dir={folder}", str(path)]
    command = [sys.executable, "-c", _LAUNCHER, *options]
    log = Path(folder, "torchrun.log")
    code = run_command(command, {**os.environ, "GLOO_SOCKET_IFNAME": LOOPBACK}, log, _SECONDS_TO_RUN)
    if code is None:
        raise WorldError(f"The script was not done after {_SECONDS_TO_RUN} s.")
    return code, log.read_text()
