"""Checks of the exercises: each runs the learner's function on the ranks, and says what is wrong and on which rank.

Here belongs the judge, and one module for each notebook: mostly sentences. How a rank is reached or watched is not
written here but asked of `look` and `measure`.
"""

from helpers.checks.cartpole_solved import parameter_server
from helpers.checks.collectives import mean_of_all, sharded, transposed
from helpers.checks.data_parallel import average_gradients, average_what_is_there
from helpers.checks.ddp_in_practice import accuracy, gated, out_of_step
from helpers.checks.distributed_autograd import accumulate, backward_by_hand, frozen
from helpers.checks.distributed_rnn import clip, two_layers
from helpers.checks.faster_distributed_rnn import looked_up, loss_there
from helpers.checks.fewer_bytes import coarse, scaled
from helpers.checks.going_on import went_on
from helpers.checks.groups_and_order import across_hosts, grid_sums, stop_together
from helpers.checks.hybrid_costs import bytes_of, split_table
from helpers.checks.hybrid_ddp_rpc import frozen_step, one_rate
from helpers.checks.inside_ddp import accumulate_all, weigh
from helpers.checks.many_environments import first_episodes
from helpers.checks.meet_the_ranks import numbers_collected, world_turned_round
from helpers.checks.overlap import buckets_by_size, two_buckets
from helpers.checks.point_to_point import gather_by_hand, overlap, ring_shift, tree_broadcast
from helpers.checks.reinforcement_learning import one_rpc, returns_of
from helpers.checks.ring_all_reduce import halving_doubling, reduce_scatter, two_way_ring
from helpers.checks.rpc_and_rref import add_many, stays_there
from helpers.checks.rpc_threads_and_failures import batches, next_replica, total_without_waiting
from helpers.checks.scaling import fastest, machines
from helpers.checks.several_trainers import bounded, shared_optimizer
from helpers.checks.uneven_ranks import averages, straggler
from helpers.checks.what_all_reduce_costs import crossover, timed, two_levels
from helpers.checks.when_ranks_fail import absent_ranks_named, uneven_shares

__all__ = [
    "absent_ranks_named",
    "accumulate",
    "accumulate_all",
    "accuracy",
    "across_hosts",
    "add_many",
    "average_gradients",
    "average_what_is_there",
    "averages",
    "backward_by_hand",
    "batches",
    "bounded",
    "buckets_by_size",
    "bytes_of",
    "clip",
    "coarse",
    "crossover",
    "fastest",
    "first_episodes",
    "frozen",
    "frozen_step",
    "gated",
    "gather_by_hand",
    "grid_sums",
    "halving_doubling",
    "looked_up",
    "loss_there",
    "machines",
    "mean_of_all",
    "next_replica",
    "numbers_collected",
    "one_rate",
    "one_rpc",
    "out_of_step",
    "overlap",
    "parameter_server",
    "reduce_scatter",
    "returns_of",
    "ring_shift",
    "scaled",
    "sharded",
    "shared_optimizer",
    "split_table",
    "stays_there",
    "stop_together",
    "straggler",
    "timed",
    "total_without_waiting",
    "transposed",
    "tree_broadcast",
    "two_buckets",
    "two_layers",
    "two_levels",
    "two_way_ring",
    "uneven_shares",
    "weigh",
    "went_on",
    "world_turned_round",
]
