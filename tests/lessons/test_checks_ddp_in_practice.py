"""14_ddp_in_practice's own asserts refuse a training that is not continued rightly from its checkpoint."""

import ipyparallel as ipp
import pytest
from answer_files import setup_of
from answers import cell

NAME = "14_ddp_in_practice.ipynb"
SETUP = setup_of("ddp_in_practice")


@pytest.mark.parametrize(
    ("whole", "broken"),
    [
        ("optimizer.load_state_dict(momentum)", "pass"),
        ("torch.manual_seed(SEED + n * epoch + rank)", "pass"),
    ],
)
def test_a_training_that_is_not_continued_rightly(world, tmp_path, whole, broken):
    definitions = cell(NAME, "def save(")
    assert definitions.count(whole) == 1
    world.view.update({"SEED": 0, "path": str(tmp_path / "checkpoint.pt")})
    world.view.execute(definitions.replace(whole, broken))
    world.view.execute(cell(NAME, "unbroken, optimizer = new_training()"))
    world.view.execute(cell(NAME, "for kept in (True, False)"))
    with pytest.raises(ipp.CompositeError) as raised:
        world.view.execute(cell(NAME, "for kept, (epoch, agreed, off)"))
    assert {kind for kind, *_ in raised.value.elist} == {"AssertionError"}


def test_a_training_that_is_continued_rightly(world, tmp_path):
    world.view.update({"SEED": 0, "path": str(tmp_path / "checkpoint.pt")})
    world.view.execute(cell(NAME, "def save("))
    world.view.execute(cell(NAME, "unbroken, optimizer = new_training()"))
    world.view.execute(cell(NAME, "for kept in (True, False)"))
    world.view.execute(cell(NAME, "for kept, (epoch, agreed, off)"))
