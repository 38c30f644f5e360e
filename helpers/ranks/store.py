"""The store through which the ranks of a world find each other, and what torchrun would tell them about it."""

import socket
from datetime import timedelta

from helpers.ranks import processes

LOOPBACK = next(name for _, name in socket.if_nameindex() if name in ("lo", "lo0"))  # Linux, macOS


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
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        **processes.at_import(),
        "GLOO_SOCKET_IFNAME": LOOPBACK,
        "TP_SOCKET_IFNAME": LOOPBACK,
    }


def serve(listener: socket.socket, ready) -> None:
    """Be a TCPStore on a socket that is bound already, until this process is killed.

    A TCPStore that binds a port itself listens on every interface. Sends `ready`, a connection, the number of CUDA
    devices, which takes torch to find out, once ranks can connect.
    """
    import torch
    from torch.distributed import TCPStore

    port = listener.getsockname()[1]
    store = TCPStore(
        "127.0.0.1",
        port,
        is_master=True,
        timeout=timedelta(seconds=30),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )
    ready.send(torch.cuda.device_count())
    ready.close()
    processes.wait_for_parent()
    del store
