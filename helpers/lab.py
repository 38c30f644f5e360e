"""Open the course in JupyterLab: `python -m helpers.lab`; what follows is passed on to JupyterLab.

In a checkout the notebooks are opened where they are. Where the course has been installed as a package, they are first
copied into a new folder, so that a learner's answers are files of their own.
"""

import os
import shutil
import sys
from pathlib import Path

from helpers.course import FIRST, IS_CHECKOUT, NOTEBOOKS

FOLDER = "torch-distributed-live"
# JupyterLab asks its user whether it may look for news in the web. The settings there say no: the course works offline,
# and a learner is asked nothing.
_SETTINGS = Path(__file__).resolve().parent / "jupyter"


def main() -> None:
    """Become JupyterLab, with the first notebook open."""
    prepare()
    # By its address the notebook opens, also for whoever copies the printed one, as with --no-browser.
    opened = f"--LabApp.default_url=/lab/tree/notebooks/{FIRST}"
    os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", opened, *sys.argv[1:]])


def prepare() -> None:
    """Prepare this process to become a Jupyter server that serves the folder in which `notebooks` lies.

    New notebooks of this server get the kernel of the course; see `helpers.kernels`.
    """
    os.chdir(NOTEBOOKS.parent if IS_CHECKOUT else _copy())
    os.environ["JUPYTER_CONFIG_PATH"] = _first(_SETTINGS, "JUPYTER_CONFIG_PATH")
    # What a notebook or a terminal starts, such as torchrun or python, is the course's own.
    os.environ["PATH"] = _first(Path(sys.executable).parent, "PATH")


def _copy():
    """Return the folder that has the notebooks; what is there already stays as it is."""
    folder = Path(FOLDER)
    folder.mkdir(mode=0o700, exist_ok=True)  # many systems let every user read a home folder, and the answers in it
    if not (folder / "notebooks").exists():
        shutil.copytree(NOTEBOOKS, folder / "notebooks", ignore=shutil.ignore_patterns("__pycache__"))
    print(f"The notebooks are in {folder.resolve()}.", flush=True)  # execv throws away what is not yet written
    return folder


def _first(folder, variable):
    """Return the folders of an environment variable, with this one before all others."""
    return os.pathsep.join(filter(None, [str(folder), os.environ.get(variable)]))


if __name__ == "__main__":
    main()
