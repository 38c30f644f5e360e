"""Lessons on cables where the hosts are so in name only: they say what they do not show, and the rest holds."""

import nbformat
import pytest
from lesson_files import ROOT, at_night, run

IN_NAME_ONLY = """
import helpers.ranks.local
from functools import partial
from helpers.ranks.supervisor import Supervisor
helpers.ranks.local.Supervisor = partial(Supervisor, private=False)
"""


@pytest.mark.parametrize("lesson", [at_night("38_two_hosts"), "39_what_a_cable_costs"])
def test_runs_without_cables(lesson, tmp_path, request):
    notebook = nbformat.read(ROOT / f"notebooks/{lesson}.ipynb", as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    code[0].source += IN_NAME_ONLY
    for cell in code:
        # What is stored is what cables have shown.
        cell.metadata["tags"] = [*{*cell.metadata.get("tags", []), "nbval-ignore-output"}]
    run(notebook, tmp_path / f"{lesson}.ipynb", request)
