"""The check of `my_two_level_all_reduce` in 38_two_hosts, where the hosts have no cables."""

from functools import partial

import pytest
from answer_files import code_of, setup_of
from answers import says

import helpers.ranks.local
from helpers import World, checks
from helpers.ranks.supervisor import Supervisor


@pytest.mark.nightly
def test_hosts_without_cables_have_their_sums_checked(monkeypatch, worlds):
    monkeypatch.setattr(helpers.ranks.local, "Supervisor", partial(Supervisor, private=False))
    world = World(4, hosts=2)
    try:
        world.view.execute(setup_of("two_hosts").code, silent=True)
        solution = code_of("two_hosts.my_two_level_all_reduce", "solution")
        assert "Without cables" in says(checks.two_hosts.my_two_level_all_reduce, world, solution)
        wrong = "def my_two_level_all_reduce(tensor):\n    dist.all_reduce(tensor, group=inside)"
        assert "Rank 0 holds 3 at index 0, expected 10" in says(checks.two_hosts.my_two_level_all_reduce, world, wrong)
    finally:
        world.stop()
