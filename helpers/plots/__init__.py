"""All figures of the course, in one style, drawn from plain data.

The functions here take lists, dicts and arrays, and ask no rank. `style` has the colours and the axes.
"""

from helpers.plots.a_backend_of_your_own import behind_a_name
from helpers.plots.a_ddp_of_your_own import step_of_ddp, two_trainings
from helpers.plots.a_language_model_on_a_mesh import curves_of_layouts, layouts_of_ranks, loss_of_one_process
from helpers.plots.actors import ages_of_batches, object_and_actor
from helpers.plots.back_by_torchrun import progress_after_failure, what_a_restart_costs
from helpers.plots.cartpole_solved import angles, one_message_for_many, paces, training_curve
from helpers.plots.collectives import before_and_after, chunk_grid, stays
from helpers.plots.controls import live
from helpers.plots.data_parallel import data_parallel_step, loss_curves
from helpers.plots.ddp_in_practice import backward_and_buckets, saved_and_resumed
from helpers.plots.distributed_autograd import autograd_graph, remote_product
from helpers.plots.distributed_rnn import cut_model, perplexity_curve
from helpers.plots.experts import expert_loads, loads_over_training, tokens_to_experts
from helpers.plots.faster_distributed_rnn import rpc_steps, step_chain, tokens_per_second
from helpers.plots.fewer_bytes import compressed_gradients, compression
from helpers.plots.find_the_fault import tool_for_symptom
from helpers.plots.fully_shard import elements_by_rank, tensors_and_slices
from helpers.plots.gradients_through_collectives import where_autograd_ends
from helpers.plots.groups_and_order import mesh_of_ranks
from helpers.plots.hybrid_costs import hybrid_phases, hybrid_round_trips, lookup_times, table_sizes
from helpers.plots.hybrid_ddp_rpc import roles, trainers_learn
from helpers.plots.hybrid_failures import recovery, three_stages, who_waits_for_whom
from helpers.plots.hybrid_proof import backward_passes, distances_from_one_process, two_races
from helpers.plots.in_your_own_job import flight_records, sources_of_a_job
from helpers.plots.inside_ddp import bucket_costs, buckets, hook_of_ddp
from helpers.plots.meet_the_ranks import lines_of_ranks, notebook_and_ranks
from helpers.plots.overlap import exposed_steps, overlap_sketch, step_timeline
from helpers.plots.pipedream import flushed_pipeline, stale_losses
from helpers.plots.pipelines import bubbles, critical_path, kept_over_time, pipeline_steps, stages_of_a_model
from helpers.plots.point_to_point import message_cost, ring_of_waits, two_messages
from helpers.plots.ranks_come_and_go import comings_and_goings, three_groups
from helpers.plots.reinforcement_learning import agent_and_observers, episode_rewards, message_diagram
from helpers.plots.replicated_pipelines import replicated_stages, times_of_splits
from helpers.plots.ring_all_reduce import ring_of_chunks, ring_step, ring_storyboard, who_sends
from helpers.plots.ring_attention import causal_chunks, ring_of_blocks, ring_work
from helpers.plots.rpc_and_rref import call_through_threads, object_and_users
from helpers.plots.rpc_threads_and_failures import server_threads, threads_of_a_rank
from helpers.plots.scaling import batch_sizes, fewer_and_longer_steps, mfu_by_gpus, throughput, time_to_loss
from helpers.plots.schedules import ranks_at_work, stages_on_ranks
from helpers.plots.seldom import loss_by_cost, loss_by_learning_rate, often_and_seldom
from helpers.plots.sequence_parallel import tokens_of_block
from helpers.plots.several_trainers import trainer_steps, trainers_and_server
from helpers.plots.sharded_data_parallel import (
    fetched_layers,
    flat_vector,
    peaks_over_ranks,
    shards_of_ranks,
    step_ledgers,
)
from helpers.plots.sharded_embeddings import busiest_ranks, loads_of_owners, rows_and_owners
from helpers.plots.tensor_parallel import two_cut_layers
from helpers.plots.three_dimensions import grids_of_ranks, layouts_on_paper, seconds_on_cables, three_splits
from helpers.plots.two_hosts import training_and_cable, two_hosts_and_switch
from helpers.plots.uneven_ranks import two_kinds_of_uneven, waiting_and_transfer
from helpers.plots.what_a_cable_costs import messages_and_model, ranks_on_a_circle
from helpers.plots.what_all_reduce_costs import all_reduce_times, bus_bandwidths, modelled_times, tree_and_ring
from helpers.plots.what_ddp_does_not_report import drifting_bias, state_of_ranks
from helpers.plots.when_ranks_disagree import passed_by_rank
from helpers.plots.when_ranks_fail import who_waits

__all__ = [
    "agent_and_observers",
    "ages_of_batches",
    "all_reduce_times",
    "angles",
    "autograd_graph",
    "backward_and_buckets",
    "backward_passes",
    "batch_sizes",
    "before_and_after",
    "behind_a_name",
    "bubbles",
    "bucket_costs",
    "buckets",
    "bus_bandwidths",
    "busiest_ranks",
    "call_through_threads",
    "causal_chunks",
    "chunk_grid",
    "comings_and_goings",
    "compressed_gradients",
    "compression",
    "curves_of_layouts",
    "critical_path",
    "cut_model",
    "data_parallel_step",
    "distances_from_one_process",
    "drifting_bias",
    "elements_by_rank",
    "episode_rewards",
    "expert_loads",
    "exposed_steps",
    "fetched_layers",
    "fewer_and_longer_steps",
    "flat_vector",
    "flight_records",
    "flushed_pipeline",
    "grids_of_ranks",
    "hook_of_ddp",
    "hybrid_phases",
    "hybrid_round_trips",
    "kept_over_time",
    "layouts_of_ranks",
    "layouts_on_paper",
    "lines_of_ranks",
    "live",
    "loads_of_owners",
    "loads_over_training",
    "lookup_times",
    "loss_by_cost",
    "loss_by_learning_rate",
    "loss_curves",
    "loss_of_one_process",
    "mesh_of_ranks",
    "message_cost",
    "message_diagram",
    "messages_and_model",
    "mfu_by_gpus",
    "modelled_times",
    "notebook_and_ranks",
    "object_and_actor",
    "object_and_users",
    "often_and_seldom",
    "one_message_for_many",
    "overlap_sketch",
    "paces",
    "passed_by_rank",
    "peaks_over_ranks",
    "perplexity_curve",
    "pipeline_steps",
    "progress_after_failure",
    "ranks_at_work",
    "ranks_on_a_circle",
    "recovery",
    "remote_product",
    "replicated_stages",
    "ring_of_blocks",
    "ring_of_chunks",
    "ring_of_waits",
    "ring_step",
    "ring_storyboard",
    "ring_work",
    "roles",
    "rows_and_owners",
    "rpc_steps",
    "saved_and_resumed",
    "seconds_on_cables",
    "server_threads",
    "shards_of_ranks",
    "sources_of_a_job",
    "stages_of_a_model",
    "stages_on_ranks",
    "stale_losses",
    "state_of_ranks",
    "stays",
    "step_chain",
    "step_ledgers",
    "step_of_ddp",
    "step_timeline",
    "table_sizes",
    "tensors_and_slices",
    "threads_of_a_rank",
    "three_groups",
    "three_splits",
    "three_stages",
    "throughput",
    "time_to_loss",
    "times_of_splits",
    "tokens_of_block",
    "tokens_per_second",
    "tokens_to_experts",
    "tool_for_symptom",
    "trainer_steps",
    "trainers_and_server",
    "trainers_learn",
    "training_and_cable",
    "training_curve",
    "tree_and_ring",
    "two_cut_layers",
    "two_hosts_and_switch",
    "two_kinds_of_uneven",
    "two_messages",
    "two_races",
    "two_trainings",
    "waiting_and_transfer",
    "what_a_restart_costs",
    "where_autograd_ends",
    "who_sends",
    "who_waits",
    "who_waits_for_whom",
]
