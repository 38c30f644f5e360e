"""Where the notebooks are: in a checkout beside this package, in an installed package inside it."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent

IS_CHECKOUT = not (_PACKAGE / "notebooks").exists()
NOTEBOOKS = (_PACKAGE.parent if IS_CHECKOUT else _PACKAGE) / "notebooks"
FIRST = "00_meet_the_ranks.ipynb"
