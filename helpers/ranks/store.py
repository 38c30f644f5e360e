"""The store through which the ranks of a world find each other, and what torchrun would tell them about it."""

import socket
from datetime import timedelta

from helpers.ranks import processes
from helpers.ranks.places import Place


def environment(rank: int, size: int, port: int, place: Place | None = None) -> dict[str, str]:
    """Return what torchrun puts into the environment of a rank at a place, without one on a machine with all `size`.

    The last three lines are not torchrun's: what torch reads when it is imported, and that ranks listen on the network
    of the world only.
    """
    place = place or Place(host=0, local_rank=rank, local_size=size)
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(place.local_rank),
        "LOCAL_WORLD_SIZE": str(place.local_size),
        "GROUP_RANK": str(place.host),
        "MASTER_ADDR": place.master,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        **processes.at_import(),
        "GLOO_SOCKET_IFNAME": place.interface,
        "TP_SOCKET_IFNAME": place.interface,
    }


def open_on(listener: socket.socket):
    """Return a new TCPStore on a socket that is bound already.

    A TCPStore that binds a port itself listens on every interface.
    """
    from torch.distributed import TCPStore

    address, port = listener.getsockname()
    return TCPStore(
        address,
        port,
        is_master=True,
        timeout=timedelta(seconds=30),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )


def serve(listener: socket.socket, ready) -> None:
    """Be a TCPStore on this socket, until this process is killed.

    Once ranks can connect, sends `ready`, a connection, the number of CUDA devices, which takes torch to find out; when
    the store cannot be made, the error.
    """
    try:
        import torch

        store = open_on(listener)
        ready.send(torch.cuda.device_count())
    except Exception as error:
        ready.send(RuntimeError(f"{type(error).__name__}: {error}"))
        return
    ready.close()
    processes.wait_for_parent()
    del store
