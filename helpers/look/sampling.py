"""The state, the memory and the traffic of every rank, again and again: what the board shows."""

import time
from contextlib import suppress
from typing import NamedTuple

import psutil

from helpers.look.cells import Cells
from helpers.look.where import RankState, from_stacks
from helpers.ranks.connections import Carried
from helpers.ranks.samples import Sample

_SECONDS_TO_ANSWER = 0.5


class Line(NamedTuple):
    """What the board shows of a rank: its state, its memory in bytes, and bytes per second into it and out of it.

    What is not known is None. The bytes are those of TCP connections, without headers.
    """

    state: RankState
    memory: int | None
    received: float | None
    sent: float | None


class Sampler:
    """Looks at ranks, and remembers what it needs for the next look."""

    def __init__(self):
        self._turn = 0
        self._memory = {}
        self._carried = {}  # rank: when, and what each connection had carried by then

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
        """Look at that of one rank after the other: it takes the system longer than all the rest."""
        self._turn = (self._turn + 1) % ranks.size
        for rank in range(ranks.size) if not self._memory else [self._turn]:
            with suppress(psutil.Error, IndexError):  # it is dead, or not there yet
                self._memory[rank] = ranks.memory(rank)

    def _rates(self, rank, carried, now):
        """Return the bytes per second into a rank and out of it since the last look; None at the first one."""
        if carried is None:
            return None, None
        earlier, before = self._carried.get(rank, (None, {}))
        self._carried[rank] = now, carried
        if earlier is None:
            return None, None
        received = sent = 0
        for connection, total in carried.items():
            until_then = before.get(connection, Carried(0, 0))
            received += total.received - until_then.received
            sent += total.sent - until_then.sent
        return received / (now - earlier), sent / (now - earlier)
