"""Replacements for parts of ipyparallel; only this module uses ipyparallel's undocumented names."""

import os
import signal
import threading
from types import SimpleNamespace

import ipyparallel.controller.app
import ipyparallel.controller.heartmonitor
import ipyparallel.engine.app
from ipykernel.iostream import OutStream
from ipyparallel.controller.heartmonitor import HeartMonitor
from ipyparallel.engine.kernel import IPythonParallelKernel

_STANDARD_ERROR = 2  # the file descriptor; in a rank it is the log
_SECONDS_BETWEEN_TRIES = 0.02


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
    """A heart monitor that sends heartbeats only while an engine is waiting to be registered.

    The death of a rank is detected sooner by other means. With continuous heartbeats every rank would wake five times a
    second, even if its learner is not at the machine.
    """

    def beat(self):
        """Send a heartbeat if an engine needs it, and register the engines that answered the previous heartbeat."""
        if SocketsInAFolder.instance().hub.incoming_registrations:
            super().beat()


class RankStream(OutStream):
    """The class of a rank's sys.stdout and sys.stderr, which send their text to the notebook.

    The base class also captures what C++ writes to the file descriptors. Captured standard error would be lost when a
    rank crashes, although it says why the rank crashed, so it stays in the rank's log.

    Standard error of threads that Python did not start also stays in the log. torch runs the function of an
    RPC in such a thread, and prints its traceback, although no cell of this rank called the function and its caller
    gets the error anyway.

    A lone surrogate, which UTF-8 cannot encode, becomes an escape. The base class would lose all of the text that it
    has not sent yet.
    """

    def __init__(self, session, thread, name):
        super().__init__(session, thread, name, watchfd=name == "stdout")

    def write(self, string: str) -> int | None:
        """Send text to the cell, and text on standard error from a thread that Python did not start to the log."""
        if self.name == "stderr" and isinstance(threading.current_thread(), threading._DummyThread):
            with open(_STANDARD_ERROR, "w", errors="replace", closefd=False) as log:
                return log.write(string)
        if isinstance(string, str):  # otherwise the base class raises the error
            string = string.encode("utf-8", "backslashreplace").decode("utf-8")
        return super().write(string)


class RankKernel(IPythonParallelKernel):
    """The kernel of a rank, which answers every cell and every call, whenever an interrupt arrives.

    In the base class an interrupt raises KeyboardInterrupt at any moment while a message is handled. Outside the
    learner's code, for example while the kernel sends the answer, the interrupt would prevent the answer, and the
    notebook would wait forever.
    """

    _message = None  # an object that identifies the message being handled
    _outside = None  # the handler of interrupts between two messages, which ignores them

    def pre_handler_hook(self):
        """Prepare for the next message: an interrupt raises KeyboardInterrupt only in the learner's code.

        Do not call the method of the base class: it sets a handler that raises KeyboardInterrupt here, too, so an
        interrupt at this moment would end the rank.
        """
        self._message = object()
        self._outside = signal.signal(signal.SIGINT, self._interrupt)

    def post_handler_hook(self):
        """Ignore interrupts again, because the answer has been sent."""
        self._message = None
        signal.signal(signal.SIGINT, self._outside)

    def _interrupt(self, _number, frame):
        while frame is not None:
            if frame.f_globals is self.shell.user_global_ns:  # of a cell, or of the line that calls a function
                raise KeyboardInterrupt
            frame = frame.f_back
        # The learner's code has not begun, or has ended.
        threading.Timer(_SECONDS_BETWEEN_TRIES, self._interrupt_again, [self._message]).start()

    def _interrupt_again(self, message):
        if message is self._message:
            os.kill(os.getpid(), signal.SIGINT)


def launch_engine(arguments: list[str]) -> None:
    """Run a rank's engine with these arguments of the command line, until it is killed."""
    ipyparallel.engine.app.Kernel = RankKernel
    ipyparallel.engine.app.IPEngine.launch_instance(argv=arguments)


def launch_controller(directory: str, for_engines: dict, for_clients: dict, monitor: int) -> None:
    """Run a controller with this connection info, until it is killed."""
    # The heart monitor would be a process of its own; as a thread it costs less and ends with the controller.
    ipyparallel.controller.app.Process = threading.Thread
    ipyparallel.controller.heartmonitor.HeartMonitor = BeatsForNewcomers
    # The hub sleeps for a quarter of a second while it starts, to wait for a database that this hub does not have.
    ipyparallel.controller.app.time = SimpleNamespace(sleep=lambda seconds: None)
    transport, _, interface = for_engines["interface"].partition("://")
    SocketsInAFolder.launch_instance(
        argv=[
            f"--profile-dir={directory}",
            f"--IPController.transport={transport}",
            f"--IPController.ip={interface}",
            f"--IPController.ports={monitor}",
            f"--Session.key={for_engines['key']}",
            # One process in place of eight, because messages between ranks do not pass through the controller.
            "--IPController.use_threads=True",
            "--IPController.broadcast_scheduler_depth=0",
            # An engine is registered after its first heartbeat, so the period is short. A rank that misses heartbeats
            # because the machine is busy must not count as dead.
            "--HeartMonitor.period=200",
            "--HeartMonitor.max_heartmonitor_misses=1000000",
        ],
        engine_info=for_engines,
        client_info=for_clients,
        write_connection_files=False,
    )
