"""The module that 25_hybrid_ddp_rpc writes for the notebooks after it."""

import nbformat
from lesson_files import ROOT

MARK = "%%px\n# hybrid_model.py\n"


def test_the_module_is_what_the_cells_of_the_notebook_say():
    cells = nbformat.read(ROOT / "notebooks/25_hybrid_ddp_rpc.ipynb", as_version=4).cells
    (title,) = [line for cell in cells for line in cell.source.splitlines() if line.startswith("title = ")]
    parts = [cell.source.removeprefix(MARK).strip() for cell in cells if cell.source.startswith(MARK)]
    expected = [title.removeprefix("title = '").removesuffix("'"), *parts]
    assert (ROOT / "notebooks/hybrid_model.py").read_text() == "\n\n\n".join(expected) + "\n"
