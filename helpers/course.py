"""Where the notebooks are: in a checkout beside this package, in an installed package inside it."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent

IS_CHECKOUT = not (_PACKAGE / "notebooks").exists()
NOTEBOOKS = (_PACKAGE.parent if IS_CHECKOUT else _PACKAGE) / "notebooks"
FIRST = "00_meet_the_ranks.ipynb"

# The folder of the learner's own copy: at the top of a checkout, where git ignores it, or below the current folder.
OWN_COPY = NOTEBOOKS.parent / "my-course" if IS_CHECKOUT else Path("torch-distributed-live")
