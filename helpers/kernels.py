"""The kernel of the course: reached through sockets in a private folder instead of TCP ports, and started with torch.

The kernelspec `torch-distributed-live`, which is installed with the package, names both: this module's provisioner and
the command `python -m helpers.start_kernel`. Whatever starts kernels through jupyter_client follows it: JupyterLab,
nbconvert, nbval. Other kernels on the machine start as they did before.

Jupyter chooses the TCP ports of a kernel while they are free, and the kernel binds them later. Meanwhile a world, which
asks for dozens of ports, can take them. In addition, every user of the machine can connect to a port, but only the
owner of a private folder can connect to a socket inside it.
"""

import os
import shutil
import tempfile
from pathlib import Path

import zmq
from jupyter_client.provisioning import LocalProvisioner

KERNEL = "torch-distributed-live"  # the name of its kernelspec
_NAME = "channel"
_LONGEST = f"/kernel-12345678/{_NAME}-5"


class PrivateSockets(LocalProvisioner):
    """Start a kernel as Jupyter does, except for the sockets."""

    folder: str | None = None

    async def pre_launch(self, **kwargs) -> dict:
        """Choose the sockets; a restarted kernel keeps its sockets."""
        if self.folder is None:
            self.folder = tempfile.mkdtemp(prefix="kernel-", dir=short_folder())  # only its owner can enter it
            self.parent.transport = "ipc"
            self.parent.ip = f"{self.folder}/{_NAME}"  # Jupyter adds -1 to -5
        return await super().pre_launch(**kwargs)

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
