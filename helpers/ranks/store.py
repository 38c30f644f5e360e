"""The store through which the ranks of a world find each other, hosted by an agent as under torchrun."""

import multiprocessing
import os
import shutil
import socket
from datetime import timedelta
from multiprocessing.util import get_temp_dir

from helpers.errors import WorldError
from helpers.ranks import processes


class Agent:
    """A process that hosts a TCPStore on the loopback and ends with the notebook.

    When the notebook has ended without doing so, it also removes `directory`, the private folder of the world, and the
    one in which multiprocessing keeps the socket of the fork server. Raises `WorldError` when the store does not start.
    """

    def __init__(self, directory: str):
        receiver, sender = processes.pipe()
        self._process = processes.start(_host_store, [directory, get_temp_dir()], sender)
        sender.close()
        try:
            # The port of the store, and how many CUDA devices there are, which takes torch to find out.
            self.port, self.cuda_devices = receiver.recv()
        except EOFError:
            raise WorldError(
                "The store of the ranks did not start. Does `import torch` work in this notebook?"
            ) from None

    def stop(self) -> None:
        """End the agent, and the store with it."""
        self._process.kill()
        self._process.join()


def environment(rank: int, size: int, port: int) -> dict[str, str]:
    """Return what torchrun puts into the environment of a rank, for `size` ranks on this machine.

    The last three lines are not torchrun's: what torch reads when it is imported, and that ranks listen on the loopback
    only.
    """
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        **processes.at_import(),
        "GLOO_SOCKET_IFNAME": LOOPBACK,
        "TP_SOCKET_IFNAME": LOOPBACK,
    }


LOOPBACK = next(name for _, name in socket.if_nameindex() if name in ("lo", "lo0"))  # Linux, macOS


def _host_store(directories, sender):
    os.setsid()  # an Interrupt of the notebook goes to its whole process group
    import torch
    from torch.distributed import TCPStore

    # A TCPStore that binds a port itself listens on every interface; this one gets a socket on the loopback.
    listener = socket.create_server(("127.0.0.1", 0))
    store = TCPStore(
        "127.0.0.1",
        listener.getsockname()[1],
        is_master=True,
        timeout=timedelta(seconds=30),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )
    sender.send((store.port, torch.cuda.device_count()))
    multiprocessing.parent_process().join()
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)
