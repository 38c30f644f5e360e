"""The kernel of the course, which uses sockets in a private folder instead of TCP ports, and starts with torch.

The kernelspec `torch-distributed-live`, which is installed with the package, names this module's provisioner and the
command `python -m helpers.start_kernel`. Every program that starts kernels through jupyter_client follows the
kernelspec: JupyterLab, nbconvert, nbval. Other kernels on the machine start as before.

Jupyter chooses free TCP ports for a kernel, and the kernel binds them later. Meanwhile a world, which needs dozens of
ports, may take them. In addition, every user of the machine can connect to a port, but only the owner of a private
folder can connect to a socket inside it.
"""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import zmq
from jupyter_client.provisioning import LocalProvisioner

KERNEL = "torch-distributed-live"  # the name of its kernelspec
FOLDER = "KERNEL_FOLDER"  # the variable that tells the kernel the folder of its sockets
_PREFIX, _NAME = "live-kernel-", "channel"
_LONGEST = f"/{_PREFIX}12345678/{_NAME}-5"


class PrivateSockets(LocalProvisioner):
    """A provisioner that starts, interrupts and ends a kernel as Jupyter does, except for the sockets."""

    folder: str | None = None
    _held: int | None = None

    async def pre_launch(self, **kwargs) -> dict:
        """Choose the sockets; a restarted kernel keeps its sockets."""
        if self.folder is None:
            remove_abandoned()
            self.folder, self._held = _make_folder()
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
            os.close(self._held)
            self.folder = self._held = None


# ---------------------------------------------------------------- the folders of sockets


def _make_folder():
    """Make a folder that only this user can enter; return it, and the file descriptor that holds it."""
    while True:
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=short_folder())
        with suppress(FileNotFoundError):
            held = hold(folder)
            if os.path.exists(folder):
                return folder, held
            os.close(held)  # another server took it for abandoned before it was held


def hold(folder: str) -> int:
    """Keep `remove_abandoned` away from a folder, until this process ends or closes the returned file descriptor.

    The server holds the folder of a kernel because the kernel may be restarted. The kernel holds it, too, because it
    may outlive its server.
    """
    held = os.open(folder, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)
    return held


def remove_abandoned() -> None:
    """Remove the folders of this user that neither a server nor a kernel holds: a killed server leaves its folders."""
    for folder in Path(short_folder()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # somebody holds it, or it is a link, or closed to this user
            held = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(held).st_uid == os.geteuid():
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(held)


def short_folder() -> str:
    """Return the temporary folder, or /tmp if its name is too long, because the system limits the path of a socket.

    Raises `OSError` when both names are too long.
    """
    for folder in (tempfile.gettempdir(), "/tmp"):
        if len(os.fsencode(folder + _LONGEST)) <= zmq.IPC_PATH_MAX_LEN and Path(folder).is_dir():
            return folder
    raise OSError(f"Sockets of a kernel need a temporary folder with a shorter name than {tempfile.gettempdir()}.")
