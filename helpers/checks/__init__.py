"""Checks of the exercises: each runs the learner's function on the ranks, and says what is wrong and on which rank.

Here belongs the judge, and one module for each notebook: mostly sentences. How a rank is reached or watched is not
written here but asked of `look` and `measure`.
"""

from helpers.checks.a_backend_of_your_own import compressing, my_exchange, sharding
from helpers.checks.accepting import accepted
from helpers.checks.cartpole_solved import parameter_server
from helpers.checks.collecting import collected
from helpers.checks.collectives import mean as mean_of_all
from helpers.checks.collectives import my_all_reduce as in_two_halves
from helpers.checks.collectives import sharded_step as sharded
from helpers.checks.collectives import transpose as transposed
from helpers.checks.cut_model import cut_model, moved_cut
from helpers.checks.data_parallel import average_gradients, average_what_is_there
from helpers.checks.data_parallel import my_synchronise as mean_gradients
from helpers.checks.ddp_in_practice import accuracy, gated, out_of_step, same_everywhere
from helpers.checks.distributed_autograd import accumulate, backward_by_hand, frozen, remote_step
from helpers.checks.distributed_rnn import clip, two_layers
from helpers.checks.episode_weights import weights
from helpers.checks.faster_distributed_rnn import looked_up, loss_there
from helpers.checks.fewer_bytes import coarse, one_round, scaled
from helpers.checks.find_the_fault import diagnoses, diagnosis, repair, repairs
from helpers.checks.fully_shard import clipped, grouped, slices
from helpers.checks.going_on import went_on
from helpers.checks.groups_and_order import across_hosts, global_mean, grid_sums, host_groups, stop_together
from helpers.checks.hybrid_costs import split_table, two_optimizers
from helpers.checks.hybrid_ddp_rpc import frozen_step, my_hybrid_step, one_rate, step_in_parts
from helpers.checks.hybrid_failures import my_checkpoint, once
from helpers.checks.hybrid_parts import my_forward, my_references, my_turns
from helpers.checks.in_your_own_job import alarm, difference, suspects
from helpers.checks.inside_ddp import accumulate_all, averaging, weigh
from helpers.checks.many_environments import first_episodes
from helpers.checks.meet_the_ranks import numbers_collected, shares, world_turned_round
from helpers.checks.overlap import buckets_by_size, my_hooks, two_buckets
from helpers.checks.pipelines import (
    backward_of_a_stage,
    most_micro_batches,
    one_forward_one_backward,
    split_backward,
)
from helpers.checks.point_to_point import gather_by_hand, overlap, ring_shift, swapped, tree_broadcast
from helpers.checks.predicting import predicted
from helpers.checks.ranks_come_and_go import caught_up, majority, quorum, weighed
from helpers.checks.reinforcement_learning import observer_round, one_rpc, returns_of
from helpers.checks.replicated_pipelines import best_cut, staleness
from helpers.checks.ring_all_reduce import halving_doubling, my_ring, reduce_scatter, two_way_ring
from helpers.checks.ring_attention import balanced, merged, online_softmax, windowed
from helpers.checks.rpc_and_rref import add_many, fan_out
from helpers.checks.rpc_and_rref import scaled_total as stays_there
from helpers.checks.rpc_locking import locked
from helpers.checks.rpc_threads_and_failures import batches, my_ask, next_replica
from helpers.checks.scaling import communicating, fastest, machines, warm_up
from helpers.checks.several_trainers import bounded, my_step_in_turn, shared_optimizer
from helpers.checks.sharded_data_parallel import frees, largest, sharded_layers, sharded_optimizer
from helpers.checks.tensor_parallel import cut_layers, cut_qkv, f_and_g, next_words
from helpers.checks.three_dimensions import (
    cut_between_stages,
    fewest_cuts,
    members_along_an_axis,
    step_in_three_dimensions,
    whole_norm,
)
from helpers.checks.two_hosts import best_order, sharded_all_reduce, two_levels_of_all_reduce, two_levels_pay
from helpers.checks.uneven_ranks import averages, mean_of_present, straggler
from helpers.checks.what_all_reduce_costs import crossover, timed, two_levels, way_up
from helpers.checks.when_ranks_fail import absent_ranks_named, uneven_shares

__all__ = [
    "absent_ranks_named",
    "accepted",
    "accumulate",
    "accumulate_all",
    "accuracy",
    "across_hosts",
    "add_many",
    "alarm",
    "average_gradients",
    "average_what_is_there",
    "averages",
    "averaging",
    "backward_by_hand",
    "backward_of_a_stage",
    "balanced",
    "batches",
    "best_cut",
    "best_order",
    "bounded",
    "buckets_by_size",
    "caught_up",
    "clip",
    "clipped",
    "coarse",
    "collected",
    "communicating",
    "compressing",
    "crossover",
    "cut_between_stages",
    "cut_layers",
    "cut_model",
    "cut_qkv",
    "diagnoses",
    "diagnosis",
    "difference",
    "f_and_g",
    "fan_out",
    "fastest",
    "fewest_cuts",
    "first_episodes",
    "frees",
    "frozen",
    "frozen_step",
    "gated",
    "gather_by_hand",
    "global_mean",
    "grid_sums",
    "grouped",
    "halving_doubling",
    "host_groups",
    "in_two_halves",
    "largest",
    "locked",
    "looked_up",
    "loss_there",
    "machines",
    "majority",
    "mean_gradients",
    "mean_of_all",
    "mean_of_present",
    "members_along_an_axis",
    "merged",
    "most_micro_batches",
    "moved_cut",
    "my_ask",
    "my_checkpoint",
    "my_exchange",
    "my_forward",
    "my_hooks",
    "my_hybrid_step",
    "my_references",
    "my_ring",
    "my_step_in_turn",
    "my_turns",
    "next_replica",
    "next_words",
    "numbers_collected",
    "observer_round",
    "once",
    "one_forward_one_backward",
    "one_rate",
    "one_round",
    "one_rpc",
    "online_softmax",
    "out_of_step",
    "overlap",
    "parameter_server",
    "predicted",
    "quorum",
    "reduce_scatter",
    "remote_step",
    "repair",
    "repairs",
    "returns_of",
    "ring_shift",
    "same_everywhere",
    "scaled",
    "sharded",
    "sharded_all_reduce",
    "sharded_layers",
    "sharded_optimizer",
    "sharding",
    "shared_optimizer",
    "shares",
    "slices",
    "split_backward",
    "split_table",
    "staleness",
    "stays_there",
    "step_in_parts",
    "step_in_three_dimensions",
    "stop_together",
    "straggler",
    "suspects",
    "swapped",
    "timed",
    "transposed",
    "tree_broadcast",
    "two_buckets",
    "two_layers",
    "two_levels",
    "two_levels_of_all_reduce",
    "two_levels_pay",
    "two_optimizers",
    "two_way_ring",
    "uneven_shares",
    "warm_up",
    "way_up",
    "weigh",
    "weighed",
    "weights",
    "went_on",
    "whole_norm",
    "windowed",
    "world_turned_round",
]
