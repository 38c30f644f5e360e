"""notebooks/train.py is built from the classes of the lesson that ends with it."""

import ast

import nbformat
import pytest
from lesson_files import ROOT

LESSON = ROOT / "notebooks/50_a_language_model_on_a_mesh.ipynb"
TRAIN = ROOT / "notebooks/train.py"


def classes(source):
    """Return the classes that a source defines, without comments and layout, by their names."""
    return {node.name: ast.unparse(node) for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}


@pytest.fixture(scope="module")
def of_the_lesson():
    cells = [cell for cell in nbformat.read(LESSON, as_version=4).cells if cell.cell_type == "code"]
    on_the_ranks = [cell.source.partition("\n")[2] for cell in cells if cell.source.startswith("%%px")]
    return classes("\n".join(on_the_ranks))


@pytest.mark.parametrize("name", ["Attention", "MLP", "Block"])
def test_a_class_of_the_file_is_the_class_of_the_lesson(name, of_the_lesson):
    assert classes(TRAIN.read_text("utf-8"))[name] == of_the_lesson[name]
