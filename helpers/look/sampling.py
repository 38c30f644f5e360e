"""Repeated samples of the state, the memory and the traffic of every rank, for the board."""

import time
from contextlib import suppress
from typing import NamedTuple

import psutil

from helpers.look.cells import Cells
from helpers.look.where import RankState, from_stacks
from helpers.probe.connections import ConnectionBytes
from helpers.probe.samples import Sample

_SECONDS_TO_ANSWER = 0.5


class Line(NamedTuple):
    """A rank's line on the board: its state, its memory in bytes, and the bytes per second that it receives and sends.

    Unknown values are None. The rates count the payload of TCP connections, without headers.
    """

    state: RankState
    memory: int | None
    received: float | None
    sent: float | None


class Sampler:
    """A sampler of the ranks, which keeps the counters of one look to compute the rates of the next."""

    def __init__(self):
        self._turn = 0
        self._memory = {}
        self._carried = {}  # rank: time of the last look, and what each connection had carried by then

    def look(self, ranks, cells: Cells) -> list[Line]:
        """Return a line for each rank; see `whereabouts` for the arguments."""
        answers = ranks.samples(set(range(ranks.size)) - ranks.deaths().keys(), _SECONDS_TO_ANSWER)
        now = time.monotonic()
        self._look_at_memory(ranks)
        lines = []
        samples = {rank: answer for rank, answer in answers.items() if isinstance(answer, Sample)}
        stacks = answers | {rank: sample.stacks for rank, sample in samples.items()}
        for state in from_stacks(stacks, cells.owed(), ranks, cells):
            sample = None if state.state == "dead" else samples.get(state.rank)
            received, sent = self._rates(state.rank, sample.carried, now) if sample else (None, None)
            lines.append(Line(state, None if state.state == "dead" else self._memory.get(state.rank), received, sent))
        return lines

    def _look_at_memory(self, ranks):
        """Update the memory of one rank per look, because this takes longer than everything else in a look."""
        self._turn = (self._turn + 1) % ranks.size
        for rank in range(ranks.size) if not self._memory else [self._turn]:
            with suppress(psutil.Error, IndexError):  # the rank is dead, or has not started yet
                self._memory[rank] = ranks.memory(rank)

    def _rates(self, rank, carried, now):
        """Return the bytes per second that a rank received and sent since the last look; None twice at the first."""
        if carried is None:
            return None, None
        earlier, before = self._carried.get(rank, (None, {}))
        self._carried[rank] = now, carried
        if earlier is None:
            return None, None
        received = sent = 0
        for connection, total in carried.items():
            until_then = before.get(connection, ConnectionBytes(0, 0))
            received += total.received - until_then.received
            sent += total.sent - until_then.sent
        return received / (now - earlier), sent / (now - earlier)
