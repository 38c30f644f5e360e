"""Figures of 22_reinforcement_learning: the roles, the messages of a round, and the rewards of a training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Patch

from helpers.plots.style import BLUE, GREEN, GUIDE, MODEL, RED, new_axes, note

if TYPE_CHECKING:  # this imports torch, which the other figures do not need
    from helpers.measure.calls import Call

_OWN = "PyTorch: _rref_typeof_on_owner"
# The look of each function; all other functions have the last look.
_LOOKS = {
    "run_episode": {"facecolor": "#D9D9D9"},
    "select_action": {"facecolor": BLUE},
    "report_reward": {"facecolor": RED, "hatch": "///"},
    _OWN: {"facecolor": GREEN, "hatch": "---"},
}
_HALF = 0.16  # half the height of a bar
_SMOOTHED = 20  # episodes in the mean that a curve shows
# The calls in the sketch: the height of the arrow, and whether the agent makes the call.
_CALLS = (
    ("1  run_episode(RRef to the agent)", 1.0, True),
    ("2  select_action(observation)", 0.0, False),
    ("3  report_reward(reward)", -1.0, False),
)


def agent_and_observers() -> None:
    """Draw a sketch of an agent and an observer, what each of them has, and the three calls between them."""
    axes = new_axes("The agent has the policy, and the observers have the environments", height=2.6)
    axes.set_axis_off()
    axes.set(xlim=(-0.1, 10), ylim=(-2, 2))
    for behind in (0.3, 0.15):
        _box(axes, 7.2 + behind, -1.6 + behind, "", "")
    _box(axes, 7.2, -1.6, "every observer", "environment\n(a cart and a pole)")
    _box(axes, 0.1, -1.6, "agent", "policy\noptimizer")
    for text, height, by_agent in _CALLS:
        begin, end = (2.6, 7.05) if by_agent else (7.05, 2.6)
        arrow = {"arrowstyle": "-|>", "color": BLUE if by_agent else RED, "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (end, height), (begin, height), arrowprops=arrow)
        axes.text(4.9, height + 0.12, text, ha="center", va="bottom", fontsize=9)
    note(axes, "2 and 3 in every step", (4.9, -1.0), (-50, -16))


def _box(axes, left, bottom, title, text):
    box = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "#404040"}
    axes.add_patch(FancyBboxPatch((left, bottom), 2.3, 2.9, **box))
    axes.text(left + 1.15, bottom + 2.5, title, ha="center", va="center", fontsize=9, fontweight="bold")
    axes.text(left + 1.15, bottom + 1.2, text, ha="center", va="center", fontsize=9)


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
    axes = new_axes("Everybody waits: a bar lasts from a call to its answer", height=1.5 + 0.85 * len(lanes))
    axes.grid(False, axis="y")
    for lane in lanes.values():
        axes.axhline(lane, color=GUIDE["color"], linewidth=0.8, zorder=1)
    for call in made:
        begin, end = 1e3 * (call.begin - origin), 1e3 * (_answered(made, call) - origin)
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


def episode_rewards(rounds: Sequence[Sequence[float]], by_chance: float) -> Figure:
    """Return a figure of the reward of every episode, in the order of the rounds, and of the mean of the last 20.

    `rounds` has the rewards of each round; a line marks the first round with fewer episodes than the round before.
    `by_chance` is the mean reward of episodes in which every push is random.
    """
    goes_on = bool(rounds) and 0 < len(rounds[-1]) < len(rounds[0])
    title = "Training goes on after an observer died" if goes_on else "Rewards while the agent learns"
    axes = new_axes(title, height=3.2)
    plt.close(axes.figure)  # the caller shows the figure, and updates it during the training
    rewards = [reward for of_round in rounds for reward in of_round]
    episodes = range(1, len(rewards) + 1)
    recent = [rewards[max(0, end - _SMOOTHED) : end] for end in episodes]
    dots = {"color": BLUE, "marker": "o", "linestyle": "", "markersize": 4}
    axes.plot(episodes, rewards, label="reward of an episode", **dots)
    axes.plot(episodes, [sum(part) / len(part) for part in recent], label=f"mean of the last {_SMOOTHED}", **MODEL)
    axes.axhline(by_chance, label=f"random play: {by_chance:.0f}", **GUIDE)
    for earlier, (before, after) in enumerate(pairwise(rounds), start=1):
        if len(after) < len(before):
            first = sum(map(len, rounds[:earlier])) + 0.5
            axes.axvline(first, color="black", linestyle="--", linewidth=1, label="an observer died")
    axes.set_xlabel("finished episodes")
    axes.set_ylabel("reward (steps)")
    axes.set(xlim=(0, None), ylim=(0, None))
    axes.figure.legend(loc="outside lower center", ncols=4, frameon=False)
    return axes.figure


def _kind(call):
    return call.function if call.function in _LOOKS else _OWN


def _answered(made, call):
    """Return when the answer to a call arrived.

    The recorder notes the end of a call on another thread, a moment late. A synchronous call, and torch's
    own call before it, have returned before the same caller makes its next call, so that call's begin is the limit.
    """
    if call.kind != "sync" and _kind(call) != _OWN:
        return call.end
    return min([call.end, *(later.begin for later in made if later.caller == call.caller and later.begin > call.begin)])


def _span(made, call):
    """Return the lower and the upper end of a bar; simultaneous calls of one caller share the height."""
    simultaneous = [c for c in made if c.caller == call.caller and _overlap(made, c, call)]
    height = 2 * _HALF / len(simultaneous)
    low = -_HALF + simultaneous.index(call) * height
    return low, low + height


def _overlap(made, one, other):
    """Return whether two calls run at the same time."""
    return min(_answered(made, one), _answered(made, other)) > max(one.begin, other.begin)
