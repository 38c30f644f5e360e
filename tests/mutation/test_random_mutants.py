"""Each notebook should refuse small random mistakes that make its text false.

`make mutants RANDOM=20 SEED=3 NOTEBOOKS=notebooks/06*` runs the stored notebook with each of 20 mutants. A mutant is
refused if a right prediction does not hold any more, or if a cell raises, exceeds its time limit, or shows another
output than the stored output. The same seed draws the same mutants. conftest.py prints the report; equivalent.py lists
the reviewed mutants that change nothing.
"""

import os

import nbformat
import pytest
from lesson_files import CHOSEN, NOTEBOOKS, run
from mutation.draw import draw
from mutation.equivalent import EQUIVALENT
from mutation.refusals import judged
from typed_in import with_predictions

COUNT = int(os.environ.get("DRAWN") or 0)
SEED = int(os.environ.get("SEED") or 0)
MUTANTS = [
    (path, mutant)
    for path in NOTEBOOKS
    if not CHOSEN or path.stem.partition("_")[2] in CHOSEN
    for mutant in draw(path, COUNT, SEED)
]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("path", "mutant"), MUTANTS, ids=[str(mutant) for _, mutant in MUTANTS])
def test_the_notebook_refuses(path, mutant, tmp_path, request, record_property):
    record_property("notebook", path.stem)
    record_property("mutant", [mutant.id, mutant.operator, mutant.cell, *mutant.change])
    equivalent = EQUIVALENT.get(mutant.topic, {})
    if mutant.id in equivalent:
        record_property("outcome", "equivalent")
        record_property("reason", equivalent[mutant.id])
        pytest.skip("equivalent")
    notebook = nbformat.read(path, as_version=4)
    (cell,) = [cell for cell in notebook.cells if cell.id == mutant.cell_id]
    cell.source = mutant.source
    solutions = nbformat.read(path.parent / "solutions" / path.name, as_version=4)
    try:
        run(with_predictions(notebook, solutions), tmp_path / path.name, request, until_refused=True)
    except pytest.fail.Exception as refusal:
        outcome, reason = judged(str(refusal))
        record_property("outcome", outcome)
        record_property("reason", reason)
        if outcome == "no program":
            pytest.skip(reason)
    else:
        record_property("outcome", "lives")
        pytest.fail("the notebook believes it", pytrace=False)
