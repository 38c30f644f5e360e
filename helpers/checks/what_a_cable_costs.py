"""Exercises of 39_what_a_cable_costs: a cost model of cables, the order of a ring, and the choice of an all-reduce."""

import operator
from typing import NamedTuple

from helpers.checks.exam import exercise, near, number, show, times_in_words

_RESTART = "Call world.restart(), run the setup cell and the cell with your answer, then this check again."
# The host of each rank, in the order of the ranks.
_LAYOUTS = ([0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 2, 0, 1, 2], [2, 0, 0, 1, 2, 2, 1], [0, 0, 0], [0, 1, 2, 3])
# Hosts, ranks on each, bytes, then (α in s, β in s/byte) inside a host and between hosts.
_CLUSTERS = (
    (2, 2, 2**22, (3e-5, 5e-10), (5e-5, 4e-8)),
    (2, 8, 2**26, (1e-5, 1e-9), (1e-5, 1e-9)),
    (16, 8, 2**12, (1e-5, 1e-9), (1e-5, 1e-9)),
    (128, 8, 2**30, (5e-6, 2.2e-12), (5e-6, 2e-11)),
    (8, 4, 2**28, (5e-6, 5e-10), (5e-6, 8e-10)),
    (2, 3, 2**26, (5e-6, 4.2e-10), (5e-6, 1e-9)),
)
_INSIDE, _ACROSS = (1.0, 0.25), (2.0, 1.0)  # α in s, β in s/byte: so that seconds can be calculated by hand


class _Step(NamedTuple):
    """Messages that start together, the seconds that they take with `_INSIDE` and `_ACROSS`, and the reason."""

    messages: list
    m: int
    seconds: float
    reason: str


_STEPS = (
    _Step([], 2, 0.0, "A step without messages takes no time."),
    _Step([(0, 1, 8), (3, 2, 4)], 2, 3.0, "A message inside a host shares nothing."),
    _Step([(0, 1, 8), (2, 1, 8)], 3, 3.0, "Messages inside a host share nothing."),
    _Step([(1, 2, 8)], 2, 10.0, "One message has the cable for itself."),
    _Step([(0, 2, 8), (1, 3, 4)], 2, 14.0, "Both messages leave host 0 by one cable, and α counts once."),
    _Step([(0, 2, 8), (3, 1, 4)], 2, 10.0, "The two directions of a cable do not disturb each other."),
    _Step([(0, 2, 8), (4, 3, 6)], 2, 16.0, "Both messages enter host 1 by one cable."),
    _Step([(0, 2, 8), (4, 6, 6)], 2, 10.0, "These messages use the cables of different hosts."),
    _Step([(0, 1, 80), (0, 2, 8)], 2, 21.0, "The step ends with its last message, here the message inside host 0."),
    _Step([(0, 2, 8), (0, 2, 8), (1, 4, 8)], 2, 26.0, "All three messages leave host 0 by one cable."),
    _Step([(2, 3, 8), (2, 4, 8), (1, 6, 4)], 3, 22.0, "Rank r is on host r // m, and here m is 3."),
)


@exercise(restart=_RESTART)
def my_step_seconds(exam):
    """Check `my_step_seconds(messages, m, inside, across)`: the seconds of a step of messages that share cables."""
    for messages, m, seconds, reason in _STEPS:
        result = exam.call(list(messages), m, _INSIDE, _ACROSS)
        returned = show(result) if number(result) is None else f"{number(result):g}"
        exam.require(
            near(result, seconds),
            f"For the messages {messages}, m = {m}, inside = {_INSIDE} and across = {_ACROSS}, rank {exam.rank} "
            f"returned {returned}, expected {seconds:g}. {reason}",
        )
    return f"Every rank calculated the seconds of {len(_STEPS)} steps."


@exercise(restart=_RESTART)
def best_order(exam):
    """Check `best_order(hosts)`: an order of the ranks in which a ring crosses between hosts as rarely as possible."""
    for hosts in _LAYOUTS:
        result = exam.call(list(hosts))
        order = _ranks(result)
        case = f"For ranks on the hosts {hosts}, rank {exam.rank} returned {show(result) if order is None else order}"
        if exam.require(
            order is not None and sorted(order) == list(range(len(hosts))),
            f"{case}, expected a list with each of the {len(hosts)} ranks once.",
        ):
            crossings, fewest = _crossings(hosts, order), len(set(hosts)) if len(set(hosts)) > 1 else 0
            exam.require(
                crossings <= fewest,
                f"{case}. That ring crosses between hosts {times_in_words(crossings)}, "
                f"expected {times_in_words(fewest)}.",
            )
    return "No ring crosses between hosts more often than necessary."


@exercise(restart=_RESTART)
def two_levels_pay(exam):
    """Check `two_levels_pay(h, m, size, inside, across)`: whether a two-level all-reduce beats one ring."""
    for cluster in _CLUSTERS:
        h, m, size, inside, across = cluster
        ring, levels = _times(*cluster)
        result = exam.call(*cluster)
        choice = result.tolist() if hasattr(result, "tolist") else result
        known = isinstance(choice, int | float) and choice in (True, False)
        if exam.require(known, f"Rank {exam.rank} returned {show(result)}, expected True or False."):
            exam.require(
                bool(choice) == (levels < ring),
                f"For {h} hosts of {m} ranks, {size / 2**20:g} MiB, {_link(inside)} inside and {_link(across)} across, "
                f"rank {exam.rank} returned {bool(choice)}, expected {not choice}: one ring takes {1e3 * ring:.3g} ms, "
                f"two levels take {1e3 * levels:.3g} ms.",
            )
    return f"Every rank chose the faster implementation for each of {len(_CLUSTERS)} clusters."


def _ranks(result):
    """Return an order as a list of integers, or None if it is something else."""
    try:
        return [operator.index(rank) for rank in result]
    except TypeError:
        return None


def _crossings(hosts, order):
    return sum(hosts[order[place - 1]] != hosts[order[place]] for place in range(len(order)))


def _times(h, m, size, inside, across):
    """Return the predicted seconds of one ring and of two levels."""
    n = h * m
    ring = 2 * (n - 1) * (across[0] + size / n * across[1])
    within = 2 * (m - 1) * (inside[0] + size / m * inside[1])
    return ring, within + 2 * (h - 1) * (across[0] + size / h * across[1])


def _link(link):
    return f"α = {1e6 * link[0]:g} µs and β = {1e9 * link[1]:.3g} ns per byte"
