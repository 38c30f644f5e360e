"""Figures of 48_experts: tokens that travel to the ranks of their experts, and the load of each expert."""

from collections.abc import Mapping, Sequence

from matplotlib.patches import Rectangle

from helpers.plots.style import RED, TINTS, arrow_of_rank, new_axes, subplots

_GREY = "#404040"
_SIDE = 0.3  # of the box of a token
_HOMES, _EXPERTS, _BACK = 0.0, 4.2, 9.4  # where the columns begin


def tokens_to_experts(choices: Sequence[Sequence[int]]) -> None:
    """Draw the tokens of each rank, the expert on each rank with the tokens that chose it, and the tokens returned.

    `choices[r]` holds the number of the expert that each token of rank r has chosen.
    """
    size = len(choices)
    axes = new_axes("Tokens travel to the rank of their expert, and back", height=0.8 + 0.85 * size)
    axes.set_axis_off()
    arrived = {expert: [] for expert in range(size)}
    for rank, experts in enumerate(choices):
        for place, expert in enumerate(experts):
            left = _EXPERTS + 1.0 + _SIDE * len(arrived[expert])
            for column in (_HOMES, _BACK):
                _token(axes, column + _SIDE * place, rank, str(expert), rank)
            begin = _HOMES + _SIDE * len(experts)
            arrow_of_rank(axes, (begin + 0.08, rank), (_EXPERTS - 0.28, expert), rank)
            arrow_of_rank(axes, (_EXPERTS + 3.95, expert), (_BACK - 0.1, rank), rank)
            _token(axes, left, expert, str(expert), rank)
            arrived[expert].append(rank)
    for rank in range(size):
        axes.text(_HOMES - 0.2, rank, f"rank {rank}", ha="right", va="center", color=_GREY)
        look = {"facecolor": "none", "edgecolor": "black", "linewidth": 1.2}
        axes.add_patch(Rectangle((_EXPERTS - 0.25, rank - 0.33), 4.15, 0.66, **look))
        axes.text(_EXPERTS - 0.15, rank, f"expert {rank}", va="center", fontsize=9)
    for middle, text in ((0.45, "tokens"), (_EXPERTS + 1.8, "their experts"), (_BACK + 0.45, "outputs")):
        axes.text(middle, -0.62, text, ha="center", color=_GREY, fontsize=9)
    axes.set(xlim=(-1.3, _BACK + 1.2), ylim=(size - 0.5, -0.85))


def expert_loads(counts: Sequence[Sequence[int]], capacity: int) -> None:
    """Draw the rows of each expert as a stacked bar with a part for each source rank, and the capacity as a line.

    `counts[r][e]` is the number of tokens of rank r that chose expert e. Each source rank may send up to `capacity`
    tokens to an expert.
    """
    size = len(counts)
    loads = [sum(column) for column in zip(*counts, strict=True)]
    busiest = max(range(size), key=loads.__getitem__)
    title = f"Expert {busiest} computes {max(loads)} rows, and every rank waits for it"
    axes = new_axes(title, height=1.3 + 0.42 * size)
    axes.grid(False, axis="y")
    for expert in range(size):
        left = 0
        for rank in range(size):
            rows = counts[rank][expert]
            axes.barh(expert, rows, left=left, height=0.7, facecolor=TINTS[rank % len(TINTS)], edgecolor=_GREY)
            if rows > 0.04 * max(loads):
                axes.text(left + rows / 2, expert, str(rank), ha="center", va="center", fontsize=9)
            left += rows
        axes.text(left, expert, f" {left}", va="center", fontsize=9, fontweight="bold")
    axes.axvline(size * capacity, color=RED, linestyle="--", linewidth=2)
    axes.text(size * capacity, size - 0.12, f" capacity {size * capacity}", color=RED, va="center", fontsize=9)
    axes.set_ylim(size + 0.15, -0.5)
    axes.set_xlim(0, 1.12 * max(*loads, size * capacity))
    axes.set_yticks(range(size), [f"expert {expert}" for expert in range(size)])
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("rows, each part with the number of the rank that sent them", fontsize=9)


def loads_over_training(histories: Mapping[str, Mapping[str, Sequence]]) -> None:
    """Draw each training in a column: the shares of the experts as stacked areas, the dropped tokens and the loss.

    `histories[name]` has a value for each step under "shares", "dropped" and "loss". `shares[step][e]` is the share of
    expert e in a step; the shares of a step add up to 1. The labels stand at the mean of the last 10 steps.
    """
    look = {"sharex": True, "sharey": "row", "height_ratios": (3, 1, 1)}
    figure, rows = subplots(3, len(histories), figsize=(7.2, 4.2), squeeze=False, **look)
    figure.suptitle("With the balancing loss every expert gets tokens", x=0.01, ha="left", fontsize=10, weight="bold")
    for (areas, dropped, loss), (name, history) in zip(rows.T, histories.items(), strict=True):
        _stacked(areas, history["shares"])
        areas.set_title(name, loc="left", fontsize=9)
        dropped.plot(history["dropped"], color=RED)
        loss.plot(history["loss"], color="black")
        loss.set_xlabel("step", fontsize=9)
        loss.set_xlim(0, len(history["loss"]) - 1)
        for axes in (areas, dropped, loss):
            axes.spines[["top", "right"]].set_visible(False)
    for axes, label in zip(rows[:, 0], ("share of all tokens", "dropped", "loss"), strict=True):
        axes.set_ylabel(label, fontsize=9)
        axes.set_ylim(bottom=0)
    figure.align_ylabels()


def _stacked(axes, steps):
    """Draw the share of each expert over the steps, with the names of the experts at the right."""
    shares = list(zip(*steps, strict=True))
    colours = [TINTS[expert % len(TINTS)] for expert in range(len(shares))]
    axes.stackplot(range(len(steps)), shares, colors=colours, edgecolor=_GREY, linewidth=0.6)
    axes.set_ylim(0, 1)
    bottom = 0
    for expert, share in enumerate(shares):
        late = sum(share[-10:]) / len(share[-10:])
        if late > 0.04:
            look = {"ha": "left", "va": "center", "fontsize": 9}
            axes.text(1.015 * len(steps), bottom + late / 2, f"expert {expert}", **look)
        bottom += late


def _token(axes, left, height, text, rank):
    box = Rectangle((left, height - 0.2), _SIDE, 0.4, facecolor=TINTS[rank % len(TINTS)], edgecolor=_GREY, zorder=3)
    axes.add_patch(box)
    axes.text(left + _SIDE / 2, height, text, ha="center", va="center", fontsize=8, zorder=4)
