"""Starts a kernel that has torch, beside the copy of itself from which ranks will be forked: see `helpers.ranks.spare`.

`helpers.kernels` has Jupyter call it in the place of `ipykernel_launcher`.
"""

import sys
from pathlib import Path


def main() -> None:
    """Become a kernel of ipykernel."""
    # What lies beside the notebook is not what torch imports; IPython puts the folder back.
    if sys.path[0] == "" or Path(sys.path[0]) == Path.cwd():
        del sys.path[0]
    from helpers.ranks import processes

    processes.prepare()
    from ipykernel import kernelapp

    kernelapp.launch_new_instance()


if __name__ == "__main__":
    main()
