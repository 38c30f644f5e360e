"""What of ipyparallel is replaced, and why: its names that are not made for it stand here and nowhere else."""

import threading
from types import SimpleNamespace

import ipyparallel.controller.app
import ipyparallel.controller.heartmonitor
from ipykernel.iostream import OutStream
from ipyparallel.controller.heartmonitor import HeartMonitor


class SocketsInAFolder(ipyparallel.controller.app.IPController):
    """A controller that binds, over ipc, the addresses to which ipyparallel's clients and engines connect.

    ipyparallel 9.2 binds INTERFACE-NUMBER and connects to INTERFACE:NUMBER. `docs/upstream/ipyparallel-ipc.patch` fixes
    that in ipyparallel; once a release contains the patch, this class can go.
    """

    def construct_url(self, kind, channel, index=None):
        """Return the address of a channel."""
        info = {"engine": self.engine_info, "client": self.client_info, "internal": self.internal_info}[kind]
        number = info[channel] if index is None else info[channel][index]
        return f"{info['interface']}:{number}"


class BeatsForNewcomers(HeartMonitor):
    """A heart monitor that sends a beat when an engine waits for it to be registered, and else is quiet.

    The death of a rank is noticed by other means, and sooner. Without an end of beats every rank would wake five times
    a second, also those of learners who have gone for lunch.
    """

    def beat(self):
        """Send a beat if it is needed, and register the engines that have answered the one before."""
        if SocketsInAFolder.instance().hub.incoming_registrations:
            super().beat()


class RankStream(OutStream):
    """What a rank's sys.stdout and sys.stderr are: both go to the notebook.

    By itself this class also takes over what C++ writes to the file descriptors. Of standard error that would be lost
    when a rank crashes, and it says why: it stays in the rank's log.
    """

    def __init__(self, session, thread, name):
        super().__init__(session, thread, name, watchfd=name == "stdout")


def launch_controller(directory: str, for_engines: dict, for_clients: dict, monitor: int) -> None:
    """Run a controller with this connection info, until it is killed."""
    # The heart monitor would be a process of its own. What it takes is a thread's share, and it ends with the others.
    ipyparallel.controller.app.Process = threading.Thread
    ipyparallel.controller.heartmonitor.HeartMonitor = BeatsForNewcomers
    # The hub sleeps for a quarter of a second while it starts, for a database that this one has not.
    ipyparallel.controller.app.time = SimpleNamespace(sleep=lambda seconds: None)
    transport, _, interface = for_engines["interface"].partition("://")
    SocketsInAFolder.launch_instance(
        argv=[
            f"--profile-dir={directory}",
            f"--IPController.transport={transport}",
            f"--IPController.ip={interface}",
            f"--IPController.ports={monitor}",
            f"--Session.key={for_engines['key']}",
            # One process in place of eight. What ranks send to each other does not pass through here.
            "--IPController.use_threads=True",
            "--IPController.broadcast_scheduler_depth=0",
            # An engine is registered after its first heartbeat, so this is short. A rank that misses heartbeats because
            # the machine is short of time must not be taken for dead.
            "--HeartMonitor.period=200",
            "--HeartMonitor.max_heartmonitor_misses=1000000",
        ],
        engine_info=for_engines,
        client_info=for_clients,
        write_connection_files=False,
    )
