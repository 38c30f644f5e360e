"""What the checks of 02_when_ranks_disagree leave in the history, and that they leave the debug level as it was."""

from answer_files import code_of, setup_of
from answers import says

from helpers import checks

SETUP = setup_of("when_ranks_disagree")


def test_the_history_names_what_my_metrics_does_wrong(world):
    says(checks.when_ranks_disagree.my_metrics, world, code_of("when_ranks_disagree.my_metrics", "skeleton"))
    latest = world.history().differences[-1]
    assert (latest.kind, latest.ranks) == ("swapped", (1,))
    assert [call.op for call in latest.calls.values()] == ["SUM", "MAX", "SUM", "SUM"]


def test_an_answer_that_leaves_detail_on_is_refused_and_the_level_is_set_back(world):
    stays_on = code_of("when_ranks_disagree.detail_group", "stays on")
    said = says(checks.when_ranks_disagree.detail_group, world, stays_on)
    assert said.startswith("Not yet. A group that rank 0 made after `detail_group` also compares")
    assert set(world.view.apply_sync(_level)) == {"OFF"}


def _level():
    import torch.distributed as dist

    return dist.get_debug_level().name
