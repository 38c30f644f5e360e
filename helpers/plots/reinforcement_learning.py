"""Figures of 20_reinforcement_learning: the messages of a round, and the rewards of a training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from matplotlib.patches import Patch

from helpers.plots.style import BLUE, GREEN, GUIDE, MODEL, RED, new_axes

if TYPE_CHECKING:  # this imports torch, which the other figures do not need
    from helpers.measure.calls import Call

_OWN = "PyTorch's own"
# The look of each function; all other functions have the last look.
_LOOKS = {
    "run_episode": {"facecolor": "#D9D9D9"},
    "select_action": {"facecolor": BLUE},
    "report_reward": {"facecolor": RED, "hatch": "///"},
    _OWN: {"facecolor": GREEN, "hatch": "---"},
}
_HALF = 0.16  # half the height of a bar


def message_diagram(made: Sequence[Call]) -> None:
    """Draw calls between workers on one machine: a lane for each worker, and time to the right.

    A bar on the lane of the caller is the time from a call to its answer, as `calls.recorded` recorded it. An arrow
    leads to the callee when the call is made, and a dashed arrow leads back when the answer arrives.
    """
    origin = min(call.begin for call in made)
    # The worker that is called most is in the middle, so that few arrows cross a lane.
    ((called_most, _),) = Counter(call.callee for call in made).most_common(1)
    others = sorted({worker for call in made for worker in (call.caller, call.callee)} - {called_most})
    workers = [*others[: len(others) // 2], called_most, *others[len(others) // 2 :]]
    lanes = {worker: lane for lane, worker in enumerate(workers)}
    axes = new_axes("Who waits for whom: bars are calls, as their callers see them", height=1.5 + 0.85 * len(lanes))
    axes.grid(False, axis="y")
    for lane in lanes.values():
        axes.axhline(lane, color=GUIDE["color"], linewidth=0.8, zorder=1)
    for call in made:
        begin, end = 1e3 * (call.begin - origin), 1e3 * (call.end - origin)
        lane, other = lanes[call.caller], lanes[call.callee]
        look = {"edgecolor": "white", "linewidth": 0.4, **_LOOKS[_kind(call)]}
        low, high = _span(made, call)
        axes.broken_barh([(begin, end - begin)], (lane + low, high - low), zorder=2, **look)
        towards = 1 if other > lane else -1
        edge, reach = lane + towards * _HALF, other - towards * _HALF
        for time, start, stop, line in ((begin, edge, reach, "-"), (end, reach, edge, "--")):
            arrow = {"arrowstyle": "->", "color": "#404040", "linewidth": 0.9, "linestyle": line}
            axes.annotate("", (time, stop), (time, start), arrowprops={**arrow, "shrinkA": 0, "shrinkB": 0}, zorder=1)
    axes.set_yticks(list(lanes.values()), list(lanes))
    axes.set_ylim(len(lanes) - 0.6, -0.4)
    axes.set_xlim(left=-0.2)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("time since the round began (ms)")
    kinds = {_kind(call) for call in made}
    handles = [Patch(label=kind, **look) for kind, look in _LOOKS.items() if kind in kinds]
    axes.figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)


def episode_rewards(rounds: Sequence[Sequence[float]], running: Sequence[float], by_chance: float) -> None:
    """Draw the reward of every episode, in the order of the rounds, and the running reward after each round.

    `rounds` has the rewards of each round; `running` begins with the running reward before the first round. `by_chance`
    is the mean reward of episodes in which every push is random.
    """
    axes = new_axes("Rewards while the agent learns", height=3.2)
    rewards = [reward for of_round in rounds for reward in of_round]
    ends = list(accumulate((len(of_round) for of_round in rounds), initial=0))
    dots = {"color": BLUE, "marker": "o", "linestyle": "", "markersize": 4}
    axes.plot(range(1, len(rewards) + 1), rewards, label="reward of an episode", **dots)
    axes.plot(ends, running, label="running reward", **MODEL)
    axes.axhline(by_chance, label=f"random play: {by_chance:.0f}", **GUIDE)
    axes.set_xlabel("finished episodes")
    axes.set_ylabel("reward (steps)")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="upper left")


def _kind(call):
    return call.function if call.function in _LOOKS else _OWN


def _span(made, call):
    """Return the lower and the upper end of a bar; simultaneous calls of one caller share the height.

    The end of a call is noted a moment late, so calls that hardly overlap count as sequential.
    """
    simultaneous = [c for c in made if c.caller == call.caller and _overlap(c, call) > 0.5]
    height = 2 * _HALF / len(simultaneous)
    low = -_HALF + simultaneous.index(call) * height
    return low, low + height


def _overlap(one, other):
    """Return the fraction of the shorter of two calls during which the other call also runs."""
    shared = min(one.end, other.end) - max(one.begin, other.begin)
    return shared / min(one.end - one.begin, other.end - other.begin)
