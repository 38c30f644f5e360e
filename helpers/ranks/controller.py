"""ipyparallel's controller, which carries the messages between the notebook and the ranks, over sockets in a folder.

Unix sockets have no ports that another program could take or reach, and they work across network namespaces. The
controller ends when the notebook ends or closes its end of a pipe.
"""

import os
import secrets
import signal
import tempfile
import threading
from pathlib import Path

import zmq
from jupyter_client.session import Session

from helpers.ranks import prefork

# ipyparallel identifies its channels by port numbers. Here a number is only the last part of a socket's name.
_REGISTRATION = 1
_FOR_ENGINES = {"control": 2, "mux": 3, "task": 4, "iopub": 5, "hb_ping": 6, "hb_pong": 7, "broadcast": [8]}
_FOR_CLIENTS = {"control": 9, "mux": 10, "task": 11, "iopub": 12, "notification": 13, "broadcast": 14}
_MONITOR = 15


class Controller:
    """A running controller, with its sockets in a private folder.

    `for_clients` and `for_engines` are ipyparallel's connection info for clients and for engines.
    """

    def __init__(self, directory: str):
        common = {
            "interface": f"ipc://{directory}/socket",
            "registration": _REGISTRATION,
            "key": secrets.token_hex(),
            "signature_scheme": "hmac-sha256",
            "pack": "json",
            "unpack": "json",
            "location": "",
            "ssh": "",
            "curve_serverkey": None,
        }
        self.for_engines = {**common, **_FOR_ENGINES}
        self.for_clients = {**common, **_FOR_CLIENTS, "task_scheme": "leastload"}
        end, self._life = prefork.pipe()
        try:
            self._process = prefork.start(run_controller, end, directory, self.for_engines, self.for_clients)
        except BaseException:
            self._life.close()  # ends the controller, if it has started
            raise
        finally:
            end.close()

    @property
    def pid(self) -> int:
        """The process id of the controller."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Return whether the controller is still running."""
        return self._process.is_alive()

    def unregister(self, engine_id: int) -> None:
        """Send the controller the message that ipyparallel's nanny process sends when its engine dies."""
        session = Session(key=self.for_engines["key"].encode(), signature_scheme=self.for_engines["signature_scheme"])
        with zmq.Context.instance().socket(zmq.DEALER) as registrar:
            registrar.linger = 1000
            registrar.connect(f"{self.for_engines['interface']}:{self.for_engines['registration']}")
            session.send(registrar, "unregistration_request", content={"id": engine_id})

    def stop(self) -> None:
        """Kill the controller, which has no state to save."""
        self._life.close()
        self._process.kill()
        self._process.join()


def run_controller(end, directory: str, for_engines: dict, for_clients: dict) -> None:
    """Run the controller until the notebook ends or closes its end of the pipe."""
    os.setsid()
    os.umask(0o077)
    tempfile.tempdir = directory  # temporary files are removed with the world
    threading.Thread(target=_end_with, args=[end], daemon=True).start()
    with Path(directory, "controller.log").open("a") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    from helpers.ranks.ipyparallel_parts import launch_controller

    launch_controller(directory, for_engines, for_clients, _MONITOR)


def _end_with(end):
    """Kill this process when the notebook ends or closes its end of the pipe."""
    end.poll(None)
    os.kill(os.getpid(), signal.SIGKILL)
