"""Figures of 20_rpc_threads_and_failures: the threads of a rank, and the requests that each server thread ran."""

from collections.abc import Mapping, Sequence

from matplotlib.patches import FancyBboxPatch, Rectangle

from helpers.plots.style import BLUE, RED, TINTS, new_axes

_HEIGHT = 0.7
_GAP = 0.6  # between two workers, in rows

_GREY = "#404040"
_LIGHT = "#b0b0b0"


def threads_of_a_rank() -> None:
    """Draw a sketch of a rank: cells come to its main thread, requests to server threads, and all share variables."""
    axes = new_axes("A rank runs cells and requests on threads that share its variables", height=2.9)
    axes.set_axis_off()
    axes.set(xlim=(0, 12), ylim=(0, 5))
    _box(axes, (3.4, 0.3), (8.4, 4.3), "")
    axes.text(3.6, 4.3, "worker1", fontweight="bold", fontsize=9)
    _box(axes, (9.3, 1.0), (2.1, 2.8), "variables,\nsuch as a count", TINTS[1])
    threads = ("main thread", "server thread 1", "server thread 2", "server thread 3")
    sources = ("cells of the notebook", "request of worker0", "request of worker2", "request of worker3")
    for row, (thread, source) in enumerate(zip(threads, sources, strict=True)):
        height = 3.8 - 1.02 * row
        color = BLUE if row == 0 else RED
        axes.text(0, height, source, va="center", fontsize=9)
        _arrow(axes, (2.5, height), (3.85, height), color)
        _box(axes, (4.0, height - 0.27), (2.2, 0.54), thread, TINTS[0] if row == 0 else "white")
        _arrow(axes, (6.35, height), (9.15, 2.9 - 0.35 * row), _GREY)


def _box(axes, corner, size, text, color="white"):
    look = {"boxstyle": "round,pad=0.08", "facecolor": color, "edgecolor": _GREY}
    axes.add_patch(FancyBboxPatch(corner, *size, **look))
    axes.text(corner[0] + size[0] / 2, corner[1] + size[1] / 2, text, ha="center", va="center", fontsize=9)


def _arrow(axes, begin, end, color):
    arrow = {"arrowstyle": "-|>", "color": color, "linewidth": 1.4, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, begin, arrowprops=arrow)


def server_threads(served: Mapping[str, Sequence[tuple[int, float, float, float]]]) -> None:
    """Draw which thread of each worker's thread pool ran which request, and how long each request waited.

    `served` maps the name of a worker to its requests. A request has the thread that ran it, and the seconds by
    `time.monotonic` at which it was sent, began and ended. The bars of a worker are numbered in the order in which its
    requests began.
    """
    first = min(sent for requests in served.values() for _, sent, _, _ in requests)
    last = max(end for requests in served.values() for *_, end in requests)
    rows = sum(len({thread for thread, *_ in requests}) + 1 for requests in served.values())
    axes = new_axes("As many requests at once as server threads", height=1.4 + 0.3 * (rows + 0.6 * len(served)))
    place, places, names = 0.0, [], []
    for worker, (name, requests) in enumerate(served.items()):
        requests = sorted(requests, key=lambda request: request[2])
        threads = list(dict.fromkeys(thread for thread, *_ in requests))
        for number, (thread, _, begin, end) in enumerate(requests, start=1):
            row = place + threads.index(thread)
            _draw(axes, begin - first, end - first, row, TINTS[worker % len(TINTS)], number)
        queue = place + len(threads)
        _draw_queue(axes, [(sent - first, begin - first) for _, sent, begin, _ in requests], queue)
        places += [place + row for row in range(len(threads) + 1)]
        names += [f"{name}, thread {row + 1}" for row in range(len(threads))] + [f"{name}, queue"]
        place = queue + 1 + _GAP
    axes.set_xlim(-0.01 * (last - first), 1.01 * (last - first))
    axes.set_ylim(place - _GAP, -1)
    axes.set_yticks(places, names)
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")
    axes.set_xlabel("time (seconds)")


def _draw(axes, begin, end, row, tint, number):
    axes.add_patch(Rectangle((begin, row - _HEIGHT / 2), end - begin, _HEIGHT, facecolor=tint, edgecolor="black"))
    axes.text((begin + end) / 2, row, number, ha="center", va="center", fontsize="small")


def _draw_queue(axes, waits, row):
    """Draw a thin light bar for each wait, one below the other."""
    thin = _HEIGHT / len(waits)
    for number, (sent, begin) in enumerate(waits):
        corner = sent, row - _HEIGHT / 2 + number * thin
        axes.add_patch(Rectangle(corner, begin - sent, 0.7 * thin, facecolor=_LIGHT, edgecolor="none"))
