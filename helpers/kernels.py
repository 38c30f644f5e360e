"""The kernel of the course, which uses sockets in a private folder instead of TCP ports, and starts with torch.

The kernelspec `torch-distributed-live`, which is installed with the package, names this module's provisioner and the
command `python -m helpers.start_kernel`. Every program that starts kernels through jupyter_client follows the
kernelspec: JupyterLab, nbconvert, nbval. Other kernels on the machine start as before.

Jupyter chooses free TCP ports for a kernel, and the kernel binds them later. Meanwhile a world, which needs dozens of
ports, may take them. In addition, every user of the machine can connect to a port, but only the owner of a private
folder can connect to a socket inside it.
"""

import os
import shutil
import tempfile
from pathlib import Path

import zmq
from jupyter_client.provisioning import LocalProvisioner

KERNEL = "torch-distributed-live"  # the name of its kernelspec
FOLDER = "KERNEL_FOLDER"  # the variable that tells the kernel the folder of its sockets
_NAME = "channel"
_LONGEST = f"/kernel-12345678/{_NAME}-5"


class PrivateSockets(LocalProvisioner):
    """A provisioner that starts, interrupts and ends a kernel as Jupyter does, except for the sockets.

    It removes the folder of the sockets when the kernel ends. If Jupyter is killed, and its kernels end with it, the
    kernel's copy removes the folder; see `helpers.ranks.prefork`.
    """

    folder: str | None = None

    async def pre_launch(self, **kwargs) -> dict:
        """Choose the sockets; a restarted kernel keeps its sockets."""
        if self.folder is None:
            self.folder = tempfile.mkdtemp(prefix="kernel-", dir=short_folder())  # only its owner can enter it
            self.parent.transport = "ipc"
            self.parent.ip = f"{self.folder}/{_NAME}"  # Jupyter adds -1 to -5
        kwargs = await super().pre_launch(**kwargs)
        kwargs["env"][FOLDER] = self.folder
        return kwargs

    async def cleanup(self, restart: bool = False) -> None:
        """Remove the folder when the kernel ends, unless it is restarted."""
        await super().cleanup(restart)
        if self.folder is not None and not restart:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None


def short_folder() -> str:
    """Return the temporary folder, or /tmp if its name is too long, because the system limits the path of a socket.

    Raises `OSError` when both names are too long.
    """
    for folder in (tempfile.gettempdir(), "/tmp"):
        if len(os.fsencode(folder + _LONGEST)) <= zmq.IPC_PATH_MAX_LEN and Path(folder).is_dir():
            return folder
    raise OSError(f"Sockets of a kernel need a temporary folder with a shorter name than {tempfile.gettempdir()}.")
