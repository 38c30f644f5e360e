"""Figures of 19_rpc_and_rref: a call on its way through the threads of two ranks, and the users of an object."""

from collections.abc import Collection, Mapping, Sequence

from helpers.plots.style import BLUE, GREEN, GUIDE, RED, TINTS, new_axes, note, subplots

_LANES = (
    "worker0: main thread",
    "worker0: TensorPipe's thread",
    "worker1: TensorPipe's thread",
    "worker1: a thread of the pool",
    "worker1: main thread",
)
_CALLER, _CALLEE = 0, 3
_OBJECT = {"boxstyle": "round,pad=0.4", "edgecolor": "black"}


def call_through_threads(times: Mapping[str, float]) -> None:
    """Draw one call, with a lane for each thread.

    `times` has the moments "called" and "answered" on the caller, and "begun" and "ended" on the callee, in seconds by
    a clock that both share. The threads of TensorPipe lie between: nobody has measured when a message passes them.
    """
    called, begun, ended, answered = (1e6 * (times[name] - times["called"]) for name in _ORDER)
    axes = new_axes("The function takes a small part of its call", height=3.2)
    axes.grid(False, axis="y")
    for lane in range(len(_LANES)):
        axes.axhline(lane, color=GUIDE["color"], linewidth=0.8, zorder=1)
    waiting = {"facecolor": "white", "edgecolor": BLUE, "hatch": "///", "zorder": 2}
    axes.barh(_CALLER, answered - called, 0.34, called, **waiting)
    axes.barh(_CALLEE, max(ended - begun, answered / 150), 0.5, begun, color=RED, zorder=3)
    for start, end, style in (
        ((called, _CALLER), (begun, _CALLEE), "-"),
        ((ended, _CALLEE), (answered, _CALLER), "--"),
    ):
        arrow = {"arrowstyle": "-|>", "color": GREEN, "linestyle": style, "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", end, start, arrowprops=arrow, zorder=4)
    note(axes, "waits for the result", ((called + answered) / 2, _CALLER), (-48, 11))
    note(axes, "runs the function", (ended, _CALLEE), (10, -12))
    note(axes, "takes no part", (called, _CALLEE + 1), (4, 4))
    note(axes, "call", (begun * 0.5, 1.5), (-34, -4))
    note(axes, "result", ((ended + answered) / 2, 1.5), (12, -4))
    axes.set_yticks(range(len(_LANES)), _LANES)
    axes.set_ylim(len(_LANES) - 0.6, -0.7)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("time since the call (µs)")


_OWNER = 1  # the rank that owns the object
_ORDER = ("called", "begun", "ended", "answered")


def object_and_users(moments: Sequence[tuple[str, Collection[int], int, int]], size: int) -> None:
    """Draw a panel for each moment: the ranks, which of them hold an RRef, and what the owner counts.

    A moment is its title, the ranks that hold an RRef, and the numbers of objects and users by the owner's count.
    """
    _, all_axes = subplots(1, len(moments), figsize=(2.05 * len(moments), 0.44 * size + 1.1), squeeze=False)
    for axes, (title, holders, objects, users) in zip(all_axes.flat, moments, strict=True):
        axes.set_axis_off()
        axes.set(xlim=(-0.3, 2.5), ylim=(size + 0.25, -0.6))
        axes.set_title(title, fontsize=10, fontweight="bold")
        place = 1.95, (size - 1) / 2
        look = {"facecolor": TINTS[1]} if objects else {"facecolor": "white", "linestyle": ":", "edgecolor": "#767676"}
        axes.text(*place, "table" if objects else "no table", ha="center", va="center", fontsize=9, bbox=_OBJECT | look)
        for rank in range(size):
            _draw_rank(axes, rank, rank in holders, rank == _OWNER, place)
        counted = f"the owner counts\n{users} user{'s' * (users != 1)}, {objects} table{'s' * (objects != 1)}"
        axes.text(1.1, size - 0.1, counted, ha="center", va="center", fontsize=9)


def _draw_rank(axes, rank, holds, owns, place):
    """Draw a rank, filled if it holds an RRef, with an arrow to the object: dashed for the owner, who is no user."""
    look = {"boxstyle": "circle,pad=0.35", "edgecolor": "black", "facecolor": TINTS[0] if holds else "white"}
    axes.text(0, rank, f"{rank}", ha="center", va="center", fontsize=9, bbox=look)
    if owns:
        axes.text(0, rank + 0.44, "owner", ha="center", va="center", fontsize=8)
    if holds:
        style = {"arrowstyle": "-|>", "color": GREEN if owns else BLUE, "linestyle": "--" if owns else "-"}
        axes.annotate("", place, (0, rank), arrowprops={**style, "linewidth": 1.4, "shrinkA": 12, "shrinkB": 20})
