"""Checks of the exercises: each runs the learner's function on the ranks, and says what is wrong and on which rank."""

from helpers.checks.collectives import grid_sums, mean_of_all, transposed
from helpers.checks.data_parallel import average_gradients, buckets_by_size, two_buckets
from helpers.checks.ddp_in_practice import accuracy, gated, out_of_step
from helpers.checks.fewer_bytes import coarse, scaled
from helpers.checks.inside_ddp import accumulate_all, weigh
from helpers.checks.meet_the_ranks import numbers_collected, world_turned_round
from helpers.checks.point_to_point import gather_by_hand, overlap, ring_shift, tree_broadcast
from helpers.checks.ring_all_reduce import halving_doubling, recursive_doubling, reduce_scatter, two_way_ring
from helpers.checks.uneven_ranks import averages, straggler
from helpers.checks.when_ranks_fail import absent_ranks_named, uneven_shares

__all__ = [
    "accumulate_all",
    "average_gradients",
    "buckets_by_size",
    "two_buckets",
    "coarse",
    "scaled",
    "averages",
    "straggler",
    "absent_ranks_named",
    "accuracy",
    "gated",
    "gather_by_hand",
    "grid_sums",
    "halving_doubling",
    "mean_of_all",
    "numbers_collected",
    "out_of_step",
    "overlap",
    "recursive_doubling",
    "reduce_scatter",
    "ring_shift",
    "transposed",
    "tree_broadcast",
    "two_way_ring",
    "uneven_shares",
    "weigh",
    "world_turned_round",
]
