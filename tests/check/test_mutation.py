"""Each operator of the random mutants changes a small cell as expected, and leaves asserts and exercises alone."""

import ast

import nbformat
import pytest
from lesson_files import NOTEBOOKS, ROOT, SOLUTIONS
from mutation.cells import parse
from mutation.draw import all_mutants, draw
from mutation.equivalent import EQUIVALENT
from mutation.operators import OPERATORS
from mutation.refusals import judged
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

LESSON = ROOT / "notebooks" / "00_small.ipynb"  # only its name counts
RING = ROOT / "notebooks" / "06_ring_all_reduce.ipynb"
SETUP = """%%px
import torch, dist
rank, n = dist.get_rank(), dist.get_world_size()
"""

# operator, the cell, and lines that it becomes, each of which an expected mutant has
EXAMPLES = [
    ("drop_statement", "%%px\nwork.wait()", ["pass"]),
    ("drop_statement", "%%px\nwork.wait(); dist.barrier()", ["pass; dist.barrier()", "work.wait(); pass"]),
    ("drop_statement", "%%px\ntensor = torch.ones(n)\ntensor += 1", ["pass"]),
    ("drop_statement", "%px dist.barrier()", ["%px pass"]),
    ("drop_context", "%%px\nwith model.no_sync():\n    f()", ['with __import__("contextlib").nullcontext():']),
    ("drop_argument", "%%px\ndist.all_reduce(x, group=pair, async_op=True)", ["dist.all_reduce(x, group=pair)"]),
    ("swap_arguments", "%%px\nnn.Linear(64, 10)", ["nn.Linear(10, 64)"]),
    ("other_string", 'a, b = count("ring"), count("naive")', ['a, b = count("naive"), count("naive")']),
    ("change_constant", "%%px\nbatch = 8", ["batch = 9", "batch = 7"]),
    ("change_constant", "%%px\nrate = 0.5", ["rate = 1.0", "rate = 0.05"]),
    ("size_off_by_one", "%%px\npeers = 2 * n", ["peers = 2 * (n - 1)"]),
    ("size_off_by_one", "%%px\nsteps = range(n - 1)", ["steps = range(n)"]),
    ("drop_factor", "%%px\nmean = (a + b) / n", ["mean = a + b"]),
    ("drop_factor", "%%px\nrate = c / ((a + b) * n)", ["rate = c / (a + b)", "rate = c / (n)"]),
    ("drop_factor", '%%px\nprint(f"{x / 2**20:.1f} MiB")', ['print(f"{x:.1f} MiB")']),
    ("other_rank", "%%px\nmine = x[rank]", ["mine = x[0]", "mine = x[(rank + 1) % dist.get_world_size()]"]),
    ("other_name", "%%px\na = torch.ones(1)\nb = torch.zeros(2)\nf(b)", ["f(a)"]),
    ("training_for_validation", "%%px\ntrain_x, val_x = load()\nf(val_x)", ["f(train_x)"]),
    ("opposite", "fastest = min(seconds)", ["fastest = max(seconds)"]),
    ("opposite", "%%px\nmodel.eval()", ["model.train()"]),
    ("share_seed", "%%px\ntorch.manual_seed(7 + rank)", ["torch.manual_seed(7 + 0)"]),
    ("share_seed", "%%px\ntorch.manual_seed(7)", ["torch.manual_seed(7 + dist.get_rank())"]),
    ("copy_or_view", "%%px\npassing = tensor.clone()", ["passing = tensor"]),
    ("copy_or_view", "%%px\nlocal = weights[:2]", ["local = weights", "local = weights[:2].clone()"]),
]

LEFT_ALONE = {
    "asserts": "%%px\nassert rank < n - 1",
    "asserts of torch": "%%px\ntorch.testing.assert_close(x, y, rtol=0.5)",
    "imports": "%%px\nimport torch.distributed as dist",
    "functions that only assert": "%%px\ndef check(f):\n    assert f()\n\ncheck(ring)",
    "docstrings": '%%px\n"""All 4 ranks."""',
    "comments": "%%px\n# all 4 ranks",
    "answers of the reader": "my_counts = {'ring': 4}",
    "verdicts": "if my_counts is None:\n    print(4 * 2)",
    "checks": "checks.ring(world, 4)",
    "lines to fill in": "%%px\ndef chunk(step):\n    return 4 * step  # your line",
    "other magics": "%matplotlib inline",
    "what a call that ends processes is given": "def end():\n    return os.kill(world.pids[2], 9)",
}


def lesson(*sources):
    """Return a notebook with parameters and set-up before these cells."""
    cells = [new_code_cell("WORLD_SIZE = 4\nSEED = 3", metadata={"tags": ["parameters"]}), new_code_cell(SETUP)]
    cells += [new_code_cell(source) if isinstance(source, str) else source for source in sources]
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    return new_notebook(cells=cells)


def mutants(*sources):
    """Return the mutants of these cells; those of the set-up are left out."""
    return [mutant for mutant in all_mutants(LESSON, lesson(*sources)) if mutant.cell > 2]


@pytest.mark.parametrize(("operator", "source", "expected"), EXAMPLES)
def test_an_operator(operator, source, expected):
    lines = {line.strip() for m in mutants(source) if m.operator == operator for line in m.change[1].splitlines()}
    assert set(expected) <= lines


def test_every_operator_has_an_example():
    assert {operator for operator, _, _ in EXAMPLES} == set(OPERATORS)


@pytest.mark.parametrize("source", LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_left_alone(source):
    changed = [mutant.change for mutant in mutants(source) if "def check" not in mutant.old_source]
    assert changed == []


def test_exercises_and_skeletons_are_left_alone():
    exercise = [new_markdown_cell("## Exercises"), "%%px\ndef answer(x):\n    return 2 * x"]
    assert mutants("%%px\ndef ring(x):\n    x += 1", "checks.ring(world)", *exercise) == []


def test_a_folded_proof_is_left_alone():
    proof = new_code_cell("last = min(n for n in counts)\nassert last == 4", metadata={"tags": ["proof"]})
    assert mutants("counts = [4]", proof) == mutants("counts = [4]")


def test_a_function_that_only_asserts_is_changed_inside_but_always_called():
    changes = [mutant.change for mutant in mutants("%%px\ndef check(f):\n    assert f(2 * n)\n    f(3)\n\ncheck(ring)")]
    assert ("    f(3)", "    pass") in changes
    assert all(before != "check(ring)" for before, _ in changes)


def test_a_name_is_taken_for_one_that_is_bound_before():
    changes = {
        m.change[1] for m in mutants("%%px\na = torch.ones(1)\nf(a)\nb = torch.zeros(2)") if m.operator == "other_name"
    }
    assert changes == set()


def test_what_the_ranks_call_so_is_not_known_in_the_notebook():
    cells = ["%%px\na = torch.ones(1)", "b = torch.ones(1)\nf(b)"]
    assert [m.change for m in mutants(*cells) if m.operator == "other_name"] == []


def test_bytes_and_characters_are_told_apart():
    (mutant,) = [m for m in mutants('%%px\nx = "n − 1", y / n') if m.operator == "drop_factor"]
    assert mutant.source == '%%px\nx = "n − 1", y'


@pytest.mark.parametrize("stored", NOTEBOOKS + SOLUTIONS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_cell_can_be_parsed(stored):
    for cell in nbformat.read(stored, as_version=4).cells:
        if cell.cell_type == "code":
            assert parse(cell.source) is not None


def test_every_mutant_is_another_program_and_has_a_name_of_its_own():
    found = all_mutants(RING)
    assert len(found) > 100
    assert len({mutant.id for mutant in found}) == len(found)
    for mutant in found:
        assert ast.dump(parse(mutant.source)) != ast.dump(parse(mutant.old_source))
        compile(parse(mutant.source), "cell", "exec")


def test_no_assert_is_changed():
    def asserts(source):
        return sorted(ast.unparse(node) for node in ast.walk(parse(source)) if isinstance(node, ast.Assert))

    assert all(asserts(mutant.source) == asserts(mutant.old_source) for mutant in all_mutants(RING))


def test_the_same_seed_draws_the_same_mutants():
    drawn = draw(RING, 20, seed=3)
    assert [mutant.id for mutant in drawn] == [mutant.id for mutant in draw(RING, 20, seed=3)]
    assert len({(mutant.cell, mutant.line) for mutant in drawn}) == 20
    assert [mutant.id for mutant in drawn] != [mutant.id for mutant in draw(RING, 20, seed=4)]


def test_an_edited_cell_gives_its_mutants_other_ids():
    before, after = mutants("%%px\nwork.wait()"), mutants("%%px\nwork.wait()  # for all")
    assert {mutant.id for mutant in before}.isdisjoint(mutant.id for mutant in after)


@pytest.mark.nightly
@pytest.mark.parametrize("topic", EQUIVALENT)
def test_reviewed_mutants_still_exist(topic):
    (path,) = ROOT.glob(f"notebooks/[0-9][0-9]_{topic}.ipynb")
    assert set(EQUIVALENT[topic]) <= {mutant.id for mutant in all_mutants(path)}


def test_a_mistake_that_python_notices_by_itself_is_no_refusal():
    shown = "Cell 3: Cell execution caused an exception\n\nInput:\nNameError\n\nTraceback:\n---\n{} here\n"
    assert judged(shown.format("NameError: no such name")) == ("no program", "cell 4: NameError: no such name here")
    assert judged(shown.format("AssertionError:")) == ("refused", "cell 4: AssertionError: here")
    assert judged("Cell 3: Cell outputs differ\n\nTraceback:\nNameError: x") == (
        "refused",
        "cell 4: Cell outputs differ",
    )
