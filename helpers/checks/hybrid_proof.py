"""Exercises of 24_hybrid_proof."""

from helpers.checks.hybrid_ddp_rpc import one_rate as one_rate
from helpers.checks.hybrid_parts import my_turns as my_turns
