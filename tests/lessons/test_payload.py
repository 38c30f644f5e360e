"""Bytes of each all-reduce of 06_ring_all_reduce, run from its cells: predicted, counted and measured agree."""

import re
from pathlib import Path

import nbformat
import pytest
from lesson_files import at_night

from helpers import World
from helpers.measure.traffic import by_pair, loopback

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
BYTES = 2**24


def cells(name):
    """Return the code cells of a notebook."""
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def functions(name):
    """Return the source of every function that a notebook defines on the ranks, by its name."""
    sources = [source for source in cells(name) if source.startswith("%%px")]
    found = [match for source in sources for match in re.finditer(r"^def (\w+)\(.*\n(?:(?:    .*)?\n?)*", source, re.M)]
    return {match[1]: match[0].rstrip() for match in found}


LESSON = functions("06_ring_all_reduce")
# The assertions that each algorithm agrees with dist.all_reduce stand in the cells, and are run here, too.
ALGORITHMS = [source.partition("\n")[2] for source in cells("06_ring_all_reduce") if "\nmust_agree(" in source]
(SETUP,) = [source.partition("\n")[2] for source in cells("06_ring_all_reduce") if "init_process_group(" in source]
(TOTALS,) = [source for source in cells("06_ring_all_reduce") if "def totals(" in source]


def predicted(n):
    namespace = {}
    exec(TOTALS, namespace)
    return namespace["totals"](n, BYTES)


@pytest.mark.alone
@pytest.mark.parametrize("n", [2, at_night(3), 4, at_night(5), at_night(8)])
def test_predicted_counted_and_measured_bytes_agree(n):
    world = World(n)
    try:
        world.view.execute(SETUP, silent=True)
        for source in (LESSON["must_agree"], LESSON["run"], LESSON["ring_of_the_lesson"], *ALGORITHMS):
            world.view.execute(source)
        measured = {name: [] for name in predicted(n)}
        # Round by round, so that a disturbance does not meet all measurements of one algorithm.
        for _ in range(5):
            for name, bytes_predicted in predicted(n).items():
                with loopback() as carried:
                    counted = by_pair(world.call("run", name, BYTES // 4)).bytes.sum()
                assert counted == bytes_predicted, name
                assert carried.bytes >= counted, name
                measured[name].append(carried.bytes / bytes_predicted)
    finally:
        world.stop()
    too_much = {
        name: [round(ratio, 3) for ratio in all_five] for name, all_five in measured.items() if min(all_five) > 1.03
    }
    assert not too_much, f"measured / predicted, above 1.03 five times: other programs use this loopback? {too_much}"


def test_the_next_notebook_repeats_the_algorithms_of_this_one():
    repeated = functions("07_what_all_reduce_costs")
    ours = {**LESSON, "ring_all_reduce": LESSON["ring_of_the_lesson"].replace("ring_of_the_lesson", "ring_all_reduce")}
    names = repeated.keys() & ours.keys() - {"run", "measure"}  # these serve other purposes here
    assert names == {"naive_exchange", "aggregator_on_rank_0", "pass_on", "ring_all_reduce"}
    for name in names:
        assert repeated[name] == ours[name], name
