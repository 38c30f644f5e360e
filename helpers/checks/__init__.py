"""Checks of the exercises: each runs the learner's function on the ranks, and says what is wrong and on which rank.

Here belongs the judge, and one module for each notebook: mostly sentences. How a rank is reached or watched is not
written here but asked of `look` and `measure`.
"""

from helpers.checks.cartpole_solved import parameter_server
from helpers.checks.collectives import grid_sums, mean_of_all, transposed
from helpers.checks.data_parallel import average_gradients, buckets_by_size, two_buckets
from helpers.checks.ddp_in_practice import accuracy, gated, out_of_step
from helpers.checks.distributed_autograd import accumulate, backward_by_hand, frozen
from helpers.checks.distributed_rnn import clip, two_layers
from helpers.checks.faster_distributed_rnn import looked_up, loss_there
from helpers.checks.fewer_bytes import coarse, scaled
from helpers.checks.hybrid_costs import split_table, two_optimizers
from helpers.checks.hybrid_ddp_rpc import frozen_step, one_rate, step_in_parts
from helpers.checks.hybrid_failures import once
from helpers.checks.inside_ddp import accumulate_all, weigh
from helpers.checks.meet_the_ranks import numbers_collected, world_turned_round
from helpers.checks.point_to_point import gather_by_hand, overlap, ring_shift, tree_broadcast
from helpers.checks.reinforcement_learning import one_rpc, returns_of
from helpers.checks.ring_all_reduce import halving_doubling, recursive_doubling, reduce_scatter, two_way_ring
from helpers.checks.rpc_and_rref import add_many, fan_out, stays_there
from helpers.checks.rpc_threads_and_failures import batches, next_replica, total_without_waiting
from helpers.checks.uneven_ranks import averages, straggler
from helpers.checks.what_all_reduce_costs import crossover, timed
from helpers.checks.when_ranks_fail import absent_ranks_named, uneven_shares

__all__ = [
    "absent_ranks_named",
    "accumulate",
    "accumulate_all",
    "accuracy",
    "add_many",
    "average_gradients",
    "averages",
    "backward_by_hand",
    "batches",
    "buckets_by_size",
    "clip",
    "coarse",
    "crossover",
    "fan_out",
    "frozen",
    "frozen_step",
    "gated",
    "gather_by_hand",
    "grid_sums",
    "halving_doubling",
    "looked_up",
    "loss_there",
    "mean_of_all",
    "next_replica",
    "numbers_collected",
    "once",
    "one_rate",
    "one_rpc",
    "out_of_step",
    "overlap",
    "parameter_server",
    "recursive_doubling",
    "reduce_scatter",
    "returns_of",
    "ring_shift",
    "scaled",
    "split_table",
    "stays_there",
    "step_in_parts",
    "straggler",
    "timed",
    "total_without_waiting",
    "transposed",
    "tree_broadcast",
    "two_buckets",
    "two_layers",
    "two_optimizers",
    "two_way_ring",
    "uneven_shares",
    "weigh",
    "world_turned_round",
]
