"""The lesson two_hosts where the hosts are so in name only: it says what it does not show, and the rest holds."""

import nbformat
from lesson_files import ROOT, run

IN_NAME_ONLY = """
import helpers.ranks.local
from functools import partial
from helpers.ranks.supervisor import Supervisor
helpers.ranks.local.Supervisor = partial(Supervisor, private=False)
"""


def test_runs_without_cables(tmp_path, request):
    notebook = nbformat.read(ROOT / "notebooks/35_two_hosts.ipynb", as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    code[0].source += IN_NAME_ONLY
    for cell in code:
        # What is stored is what cables have shown.
        cell.metadata["tags"] = [*{*cell.metadata.get("tags", []), "nbval-ignore-output"}]
    run(notebook, tmp_path / "35_two_hosts.ipynb", request)
