"""Kernels that are reached through sockets in a private folder, instead of TCP ports, and that begin with torch.

A TCP port of a kernel is free when Jupyter chooses it, and may be taken when the kernel binds it; worlds, which ask for
dozens of ports, take it now and then. And every user of the machine can connect to a port, but only the owner to what
lies in the folder. `JUPYTER_DEFAULT_PROVISIONER_NAME=private-sockets` selects this for whatever starts kernels through
jupyter_client: JupyterLab, nbconvert, nbval.

The kernels import torch before they do anything else, and are then copied for the ranks; see `helpers.start_kernel`.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import zmq
from jupyter_client.provisioning import LocalProvisioner

_NAME = "channel"
_LONGEST = f"/kernel-12345678/{_NAME}-5"


class PrivateSockets(LocalProvisioner):
    """Starts a kernel as Jupyter does, but for the sockets, and for torch where the kernel is one of this Python."""

    folder: str | None = None

    async def pre_launch(self, **kwargs) -> dict:
        """Choose the sockets; a kernel that is restarted keeps its own."""
        if self.folder is None:
            self.folder = tempfile.mkdtemp(prefix="kernel-", dir=short_folder())  # only its owner can enter it
            self.parent.transport = "ipc"
            self.parent.ip = f"{self.folder}/{_NAME}"  # Jupyter adds -1 to -5
        kwargs = await super().pre_launch(**kwargs)
        if kwargs["cmd"][0] == sys.executable:
            kwargs["cmd"] = ["helpers.start_kernel" if part == "ipykernel_launcher" else part for part in kwargs["cmd"]]
        return kwargs

    async def cleanup(self, restart: bool = False) -> None:
        """Remove the folder with the kernel."""
        await super().cleanup(restart)
        if self.folder is not None and not restart:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None


def short_folder() -> str:
    """Return the temporary folder, or /tmp when that has too long a name: the system limits the path of a socket.

    Raises `OSError` when neither will do.
    """
    for folder in (tempfile.gettempdir(), "/tmp"):
        if len(os.fsencode(folder + _LONGEST)) <= zmq.IPC_PATH_MAX_LEN and Path(folder).is_dir():
            return folder
    raise OSError(f"Sockets of a kernel need a temporary folder with a shorter name than {tempfile.gettempdir()}.")
