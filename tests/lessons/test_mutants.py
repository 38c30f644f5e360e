"""Lessons broken on purpose: a mutant makes a claim of its notebook false, and the notebook has to refuse it.

The right predictions have to hold, so a measurement that comes out otherwise is refused by its prediction.

tests/known_mutants.py says what a mutant is. `make mutants` runs them, and `make test ALL=1`.
"""

import re

import nbformat
import pytest
from known_mutants import MUTANTS, break_on_purpose, path_of
from lesson_files import run
from typed_in import with_predictions

# A mutant that is not a program any more proves nothing.
NO_PROGRAM = re.compile(r"\b(SyntaxError|IndentationError|NameError|ModuleNotFoundError|ImportError)\b")


@pytest.mark.nightly
@pytest.mark.parametrize(("topic", "name", "old", "new"), MUTANTS, ids=[f"{m.topic}: {m.name}" for m in MUTANTS])
def test_the_notebook_refuses(topic, name, old, new, tmp_path, request):
    path = path_of(topic)
    notebook = nbformat.read(path, as_version=4)
    break_on_purpose(notebook, old, new)
    solutions = nbformat.read(path.parent / "solutions" / path.name, as_version=4)
    with pytest.raises(pytest.fail.Exception) as refusal:
        run(with_predictions(notebook, solutions), tmp_path / path.name, request, until_refused=True)
        raise AssertionError(f"the notebook believes that {name}")
    reason = str(refusal.value)
    assert not NO_PROGRAM.search(reason), reason
