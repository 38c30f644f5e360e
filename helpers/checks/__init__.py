"""Checks of the exercises: each runs the learner's function on the ranks, and says what is wrong and on which rank."""

from helpers.checks.meet_the_ranks import numbers_collected, world_turned_round
from helpers.checks.point_to_point import gather_by_hand, overlap, ring_shift, tree_broadcast
from helpers.checks.when_ranks_fail import absent_ranks_named, uneven_shares

__all__ = [
    "absent_ranks_named",
    "gather_by_hand",
    "numbers_collected",
    "overlap",
    "ring_shift",
    "tree_broadcast",
    "uneven_shares",
    "world_turned_round",
]
