"""Start a kernel that has imported torch, and a copy of it from which ranks are forked; see `helpers.ranks.prefork`.

The kernelspec of the course names this module instead of `ipykernel_launcher`; see `helpers.kernels`.
"""

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from helpers.ranks import prefork


def main() -> None:
    """Import torch, and run ipykernel in this process."""
    # Files next to the notebook must not shadow the modules that torch imports; IPython puts the folder back.
    if sys.path[0] == "" or Path(sys.path[0]) == Path.cwd():
        del sys.path[0]
    # `!torchrun` must be the torchrun of the kernel's Python, however Jupyter was started.
    os.environ["PATH"] = os.pathsep.join(filter(None, [str(Path(sys.executable).parent), os.environ.get("PATH")]))
    from helpers.kernels import FOLDER, hold

    folder = os.environ.pop(FOLDER, None)
    _share_the_folder_of_ipython(folder)
    prefork.prepare()
    from ipykernel import kernelapp

    if folder:
        with suppress(OSError):  # the server was killed meanwhile, and another server has removed the folder
            hold(folder)
    kernelapp.launch_new_instance([*sys.argv[1:], "--IPKernelApp.extra_extensions=helpers.look.slips"])


def _share_the_folder_of_ipython(folder):
    """Have all processes of a notebook use the same folder for IPython's files.

    If the home folder cannot be written to, IPython makes a temporary folder, and no process removes it. Here it is
    inside the folder that is removed with the kernel.
    """
    from IPython.paths import get_ipython_dir

    before, tempfile.tempdir = tempfile.tempdir, folder or tempfile.tempdir
    os.environ.setdefault("IPYTHONDIR", get_ipython_dir())
    tempfile.tempdir = before


if __name__ == "__main__":
    main()
