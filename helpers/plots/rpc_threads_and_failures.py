"""Figures of 20_rpc_threads_and_failures: the requests that each thread of a thread pool ran."""

from collections.abc import Mapping, Sequence

from matplotlib.patches import Rectangle

from helpers.plots.style import TINTS, new_axes

_HEIGHT = 0.7
_GAP = 0.6  # between two workers, in rows


def server_threads(served: Mapping[str, Sequence[tuple[int, float, float]]]) -> None:
    """Draw which thread of each worker's thread pool ran which request, and when.

    `served` maps the name of a worker to its requests. A request has the thread that ran it, its begin and its end in
    seconds by `time.monotonic`. The bars of a worker are numbered in the order in which its requests began.
    """
    first = min(begin for requests in served.values() for _, begin, _ in requests)
    last = max(end for requests in served.values() for _, _, end in requests)
    threads = sum(len({thread for thread, _, _ in requests}) for requests in served.values())
    axes = new_axes("As many requests at once as server threads", height=1.4 + 0.3 * (threads + len(served)))
    place, places, names = 0.0, [], []
    for worker, (name, requests) in enumerate(served.items()):
        requests = sorted(requests, key=lambda request: request[1])
        rows = {thread: row for row, thread in enumerate(dict.fromkeys(thread for thread, _, _ in requests))}
        for number, (thread, begin, end) in enumerate(requests, start=1):
            _draw(axes, begin - first, end - first, place + rows[thread], TINTS[worker % len(TINTS)], number)
        places += [place + row for row in rows.values()]
        names += [f"{name}, thread {row + 1}" for row in rows.values()]
        place += len(rows) + _GAP
    axes.set_xlim(-0.01 * (last - first), 1.01 * (last - first))
    axes.set_ylim(place - _GAP, -1)
    axes.set_yticks(places, names)
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")
    axes.set_xlabel("time (seconds)")


def _draw(axes, begin, end, row, tint, number):
    axes.add_patch(Rectangle((begin, row - _HEIGHT / 2), end - begin, _HEIGHT, facecolor=tint, edgecolor="black"))
    axes.text((begin + end) / 2, row, number, ha="center", va="center", fontsize="small")
