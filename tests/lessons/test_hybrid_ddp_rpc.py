"""The module `hybrid_model`, which 28_hybrid_ddp_rpc explains and the notebooks after it import."""

import re

import nbformat
from lesson_files import ROOT

MARK = "%%px\n# hybrid_model.py\n"
OF_HYBRID_PROOF = {"gradient_of_table"}


def sources():
    cells = nbformat.read(ROOT / "notebooks/28_hybrid_ddp_rpc.ipynb", as_version=4).cells
    return [cell.source for cell in cells if cell.cell_type == "code"]


def definitions(text):
    return set(re.findall(r"^(?:def|class) (\w+)", text, re.MULTILINE))


def test_the_module_has_the_marked_cells_of_the_notebook_in_their_order():
    marked = [source.removeprefix(MARK).strip() for source in sources() if source.startswith(MARK)]
    module = (ROOT / "notebooks/hybrid_model.py").read_text()
    places = [module.find(f"\n\n\n{source}\n\n\n") for source in marked]
    assert -1 not in places and places == sorted(places)
    assert definitions(module) == definitions("\n".join(marked)) | OF_HYBRID_PROOF


def test_the_notebook_writes_only_a_module_that_git_ignores():
    written = re.findall(r'open\("(.+?)", "w"\)', "\n".join(sources()))
    assert written == ["my_hybrid_model.py"]
    assert f"/notebooks/{written[0]}" in (ROOT / ".gitignore").read_text().splitlines()
