"""Open the course in JupyterLab: `python -m helpers.lab`; other arguments are passed on to JupyterLab.

The learner gets a copy of the notebooks; see `helpers.own_copy`. With `--originals` JupyterLab serves the original
notebooks, for authors.
"""

import os
import sys
from pathlib import Path

from helpers import own_copy
from helpers.course import FIRST, NOTEBOOKS, OWN_COPY

_ORIGINALS = "--originals"
# These settings turn off JupyterLab's question about online news, because the course works offline. They also hide
# ipyparallel's panel, whose clusters are not the notebook's, and show Markdown files rendered.
_SETTINGS = Path(__file__).resolve().parent / "jupyter"


def main() -> None:
    """Replace this process with JupyterLab, with the first notebook open."""
    arguments = sys.argv[1:]
    if _ORIGINALS in arguments:
        arguments.remove(_ORIGINALS)
        serve(NOTEBOOKS.parent)
    else:
        prepare()
    # The address says which notebook opens, so that a copy of the printed address opens it as well.
    opened = f"--LabApp.default_url=/lab/tree/notebooks/{FIRST}"
    os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", opened, *arguments])


def prepare() -> None:
    """Bring the learner's copy up to date, and prepare this process to become a Jupyter server that serves it.

    Exits with a sentence if the copy cannot be written.
    """
    try:
        changes = own_copy.bring_up_to_date(NOTEBOOKS, OWN_COPY)
    except OSError as error:
        sys.exit(
            f"Your copy of the notebooks in {OWN_COPY.resolve()} cannot be brought up to date: {error}. "
            "Make the folder writable, or install the course in a folder of your own."
        )
    print(f"The notebooks are in {OWN_COPY.resolve()}.", *changes, sep="\n", flush=True)  # execv would drop the buffer
    serve(OWN_COPY)


def serve(folder: Path) -> None:
    """Prepare this process to become a Jupyter server that serves the folder that contains `notebooks`.

    New notebooks of this server get the kernel of the course; see `helpers.kernels`.
    """
    os.chdir(folder)
    os.environ["JUPYTER_CONFIG_PATH"] = _first(_SETTINGS, "JUPYTER_CONFIG_PATH")
    # JupyterLab reopens the files of its workspace. A separate workspace keeps out the user's other projects.
    os.environ["JUPYTERLAB_WORKSPACES_DIR"] = str(Path.cwd() / ".workspaces")
    # Notebooks and terminals then find the course's own torchrun and python first.
    os.environ["PATH"] = _first(Path(sys.executable).parent, "PATH")


def _first(folder, variable):
    """Return the value of an environment variable that lists folders, with this folder put first."""
    return os.pathsep.join(filter(None, [str(folder), os.environ.get(variable)]))


if __name__ == "__main__":
    main()
