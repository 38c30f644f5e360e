"""Start a kernel that has imported torch, and a copy of it from which ranks are forked; see `helpers.ranks.prefork`.

The kernelspec of the course names this module instead of `ipykernel_launcher`; see `helpers.kernels`.
"""

import os
import sys
from pathlib import Path


def main() -> None:
    """Import torch, and run ipykernel in this process."""
    # Files next to the notebook must not shadow the modules that torch imports; IPython puts the folder back.
    if sys.path[0] == "" or Path(sys.path[0]) == Path.cwd():
        del sys.path[0]
    # `!torchrun` must be the torchrun of the kernel's Python, however Jupyter was started.
    os.environ["PATH"] = os.pathsep.join(filter(None, [str(Path(sys.executable).parent), os.environ.get("PATH")]))
    from helpers.ranks import prefork

    prefork.prepare()
    from ipykernel import kernelapp

    from helpers.kernels import hold_own_sockets

    if "-f" in sys.argv:  # Jupyter gives the connection file
        hold_own_sockets(sys.argv[sys.argv.index("-f") + 1])
    kernelapp.launch_new_instance([*sys.argv[1:], "--IPKernelApp.extra_extensions=helpers.look.slips"])


if __name__ == "__main__":
    main()
