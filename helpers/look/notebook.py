"""Connect a world to the notebook: the record of its cells, the `%%px` magics, completion, and waiting for answers."""

from IPython import get_ipython

from helpers.look.cells import Cells
from helpers.look.editor import Editor
from helpers.look.magics import RankMagics
from helpers.look.waiting import Waiter
from helpers.ranks.protocol import Ranks


def connect(world, ranks: Ranks) -> tuple[Cells, Waiter, Editor | None]:
    """Connect a world and its ranks to the notebook, in place of an earlier world; there is no editor in a script."""
    cells = Cells(ranks.client)
    waiter = Waiter(world, ranks, cells)
    shell = get_ipython()
    if shell is None:
        return cells, waiter, None
    shell.register_magics(RankMagics(shell, world, ranks, cells, waiter))
    return cells, waiter, Editor(ranks, cells).connect(shell)
