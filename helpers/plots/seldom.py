"""The figures of 17_seldom: when ranks wait for the link, and the loss by bytes, by seconds and by learning rate."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from helpers.plots.style import BLUE, GREEN, RED, TINTS, new_axes, subplots

_GREY = "#404040"
_STEPS = 8
_WAIT = 1.1  # for the link, relative to the computation of a step
# A method has a colour, and a period a marker and a line.
_METHODS = {
    "DDP": {"color": BLUE, "marker": "o", "linestyle": "-"},
    "DDP, fp16": {"color": "#56B4E9", "marker": "s", "linestyle": "-"},
    "post_localSGD_hook": {"color": "#404040", "marker": "P", "linestyle": ":"},
    "average": {"color": GREEN},
    "DiLoCo": {"color": RED},
}
_PERIODS = {
    "1": {"marker": "*", "linestyle": "-"},
    "10": {"marker": "^", "linestyle": "--"},
    "100": {"marker": "v", "linestyle": "-."},
}


def often_and_seldom(period: int) -> None:
    """Draw steps of a rank with DDP and with local SGD, which waits for the link only after each period."""
    axes = new_axes(f"DDP waits after every step, local SGD after every {period} steps", height=1.9)
    axes.grid(False)
    axes.set(ylim=(1.75, -0.55), yticks=(0, 1), xlabel="time")
    axes.set_yticklabels(("DDP", f"local SGD, H = {period}"))
    axes.set_xticks([])
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    for lane, every in enumerate((1, period)):
        place = 0.0
        for step in range(1, _STEPS + 1):
            _bar(axes, place, lane, 1.0, facecolor=TINTS[0])
            axes.text(place + 0.5, lane, str(step), ha="center", va="center", fontsize=9)
            place += 1
            if step % every == 0:
                _bar(axes, place, lane, _WAIT, facecolor="white", hatch="////")
                place += _WAIT
    axes.set_xlim(-0.1, _STEPS * (1 + _WAIT) + 0.1)
    kinds = Patch(facecolor=TINTS[0], edgecolor=_GREY), Patch(facecolor="white", edgecolor=_GREY, hatch="////")
    axes.figure.legend(
        kinds, ("computes a step", "waits for the link"), loc="outside lower center", ncols=2, frameon=False
    )


def loss_by_cost(curves: Mapping[str, Sequence[tuple[int, float, float]]]) -> None:
    """Draw the losses of trainings against the bytes that a rank has handed over, and against the seconds.

    A curve is a list of bytes, seconds and loss. The first point, before the first step, is left out.
    """
    figure, (left, right) = subplots(1, 2, figsize=(9.2, 3.9), sharey=True)
    last = {name: curve[-1] for name, curve in curves.items()}
    for name, curve in curves.items():
        sent, seconds, losses = zip(*curve[1:], strict=True)
        shown = [(size / 1e6, loss) for size, loss in zip(sent, losses, strict=True) if size]
        left.plot(*zip(*shown, strict=True), **_look(name), markersize=5, label=name)
        right.plot(seconds, losses, **_look(name), markersize=5)
    left.set(xscale="log", xlabel="MB that a rank has handed over", ylabel="validation loss")
    right.set(xlabel="seconds on the slow links", xlim=(0, None))
    most, least = (pick(size for size, _, _ in last.values()) for pick in (max, min))
    longest, shortest = (pick(seconds for _, seconds, _ in last.values()) for pick in (max, min))
    for axes, title in (
        (left, f"Up to {most / least:.0f} times fewer bytes"),
        (right, f"Training takes {longest:.1f} s at most, {shortest:.1f} s at least"),
    ):
        _dress(axes, title)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)


def loss_by_learning_rate(losses: Mapping[str, Mapping[float, float]]) -> None:
    """Draw the loss of each training at each learning rate, with the name of the training at its last point."""
    rates = list(next(iter(losses.values())))
    best = {rate: min(losses, key=lambda name: losses[name][rate]) for rate in rates}
    title = "; ".join(f"best at {rate:g}: {name.replace(', ', ' with ')}" for rate, name in best.items())
    axes = new_axes(title[0].upper() + title[1:], height=3.9)
    for name, by_rate in losses.items():
        axes.plot(rates, by_rate.values(), **_look(name), markersize=6)
    axes.set(xscale="log", xlabel="learning rate", ylabel="validation loss after training")
    axes.set_xlim(rates[0] / 1.2, rates[-1] * 3)
    axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
    axes.minorticks_off()
    places = _apart([by_rate[rates[-1]] for by_rate in losses.values()], axes)
    for name, place in zip(losses, places, strict=True):
        axes.annotate(name, (rates[-1] * 1.08, place), va="center", fontsize="small", color=_look(name)["color"])


def _look(name):
    """Return the look of a training, such as "DiLoCo, H = 10"."""
    method, _, period = name.partition(", H = ")
    return _METHODS[method] | _PERIODS.get(period, {})


def _apart(values, axes: Axes):
    """Return the values, moved up where labels of two of them would overlap."""
    low, high = axes.get_ylim()
    places, top = {}, low - high
    for value in sorted(values):
        top = max(value, top + (high - low) / 18)
        places[value] = top
    return [places[value] for value in values]


def _bar(axes: Axes, place, lane, width, **look):
    axes.add_patch(Rectangle((place, lane - 0.3), width, 0.6, edgecolor=_GREY, linewidth=0.8, **look))


def _dress(axes: Axes, title):
    axes.set_title(title, loc="left", pad=10, fontsize="medium", fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#E0E0E0")
    axes.set_axisbelow(True)
