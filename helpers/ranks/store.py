"""The store through which the ranks of a world rendezvous, and the environment variables that torchrun would set."""

import os
import socket
from contextlib import suppress
from datetime import timedelta

from helpers.ranks import prefork, process_tree
from helpers.ranks.topology import Place


def environment(rank: int, size: int, port: int, place: Place | None = None) -> dict[str, str]:
    """Return the variables that torchrun would set for a rank; without `place` all `size` ranks share one machine.

    torch reads the variables of `at_import` when it is imported; of these, torchrun sets only OMP_NUM_THREADS. torchrun
    does not set the variables of the last two lines, which make the ranks listen only on the network of the world.
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
        **prefork.at_import(),
        "GLOO_SOCKET_IFNAME": place.interface,
        "TP_SOCKET_IFNAME": place.interface,
    }


def find_store(port: int) -> None:
    """Make this rank use the store at this port."""
    os.environ["MASTER_PORT"] = str(port)


def open_on(listener: socket.socket):
    """Return a new TCPStore on this listening socket, because by default a TCPStore listens on every interface."""
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


class StoreProcess:
    """A process with a TCPStore on the first host, where all ranks reach it at `port`.

    `ends` has the object to wait for, see `end_of`. When the store has ended, `start_again` starts a new store at the
    same port.
    """

    def __init__(self, hosts):
        self._hosts = hosts
        self._start(port=0)

    def cuda_devices(self) -> int:
        """Wait until the store has started, and return the number of CUDA devices; raise the error of its start."""
        answer = self._ready.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def replace(self) -> int:
        """Start a new store in place of the old store, and return its port."""
        self._process.kill()
        self._forget()
        self._start(port=0)
        self.cuda_devices()
        return self.port

    def start_again(self) -> None:
        """Start a new store at the port of the store that was killed."""
        if not self._process.is_alive():  # otherwise the store has been replaced meanwhile
            self._forget()
            with suppress(OSError, EOFError, RuntimeError):  # the port is taken; `replace` uses another port
                self._start(self.port)
                self.cuda_devices()

    def _start(self, port):
        children = prefork.children()
        with self._hosts.inside(0):
            listener = socket.create_server((self._hosts.master, port))
        self._ready, sender = children.Pipe(duplex=False)
        self._process = children.Process(target=_run, args=[self._hosts, listener, sender])
        self._process.start()
        self.ends = [process_tree.end_of(self._process)]
        sender.close()
        with listener:
            self.port = listener.getsockname()[1]

    def _forget(self):
        self._process.join()
        while self.ends:
            process_tree.close_end(self._process, self.ends.pop())


def _run(hosts, listener, ready):
    """Run the store of a world until the supervisor ends or kills this process.

    Once ranks can connect, send the number of CUDA devices, which only torch can count, through the connection `ready`.
    If the store cannot be made, send the error.
    """
    process_tree.end_with_parent()
    hosts.enter(0)
    try:
        import torch

        store = open_on(listener)
        ready.send(torch.cuda.device_count())
    except Exception as error:
        ready.send(RuntimeError(f"{type(error).__name__}: {error}"))
        return
    ready.close()
    process_tree.wait_for_parent()
    del store
