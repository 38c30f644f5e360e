"""Figures of 43_sharded_data_parallel: shards, the memory of a rank during a step, and layers fetched ahead."""

from collections.abc import Mapping, Sequence
from itertools import groupby

from matplotlib.patches import Patch, Rectangle

from helpers.measure.intervals import Interval
from helpers.plots.style import BLUE, GREEN, GUIDE, RED, TINTS, new_axes, note, subplots

# From the bottom up, with hatches that distinguish them in print: the look of a kind, and its column in a ledger.
_KINDS = {
    "optimizer's state": (2, {"facecolor": TINTS[2], "edgecolor": GREEN, "hatch": "..."}),
    "parameters": (0, {"facecolor": TINTS[0], "edgecolor": BLUE}),
    "gradients": (1, {"facecolor": TINTS[5], "edgecolor": RED, "hatch": "///"}),
    "flat copy of a layer's gradients": (3, {"facecolor": "#404040", "edgecolor": "#404040"}),
}
# The look of each curve of peaks, and how far its label is shifted from its end, in points.
_CURVES = {
    "data parallel": {"color": "#404040", "linestyle": "-"},
    "ZeRO-1": {"color": GREEN, "linestyle": "--"},
    "ZeRO-2": {"color": BLUE, "linestyle": "-."},
    "ZeRO-3": {"color": RED, "linestyle": "-"},
}
# Bars of a timeline: their lane, and their look.
_BARS = {
    "forward": (0, {"facecolor": "#B5D6EC"}),
    "backward": (0, {"facecolor": BLUE}),
    "wait": (0, {"facecolor": "white", "hatch": "xxxx"}),
    "all-gather": (1, {"facecolor": "#F3B58C"}),
    "reduce-scatter": (2, {"facecolor": "#A34400"}),
}
_LANES = ("computes", "all-gather", "reduce-scatter")
_OWN, _FETCHED = "#404040", "#9A9A9A"  # edges of chunks


def shards_of_ranks() -> None:
    """Draw a sketch of the parameters of four layers on four ranks: on the left copies, on the right shards."""
    size, layers, computing = 4, 4, 1
    axes = new_axes("A sharded rank holds one whole layer at a time, and its shards of all others", 7.8, 2.9)
    axes.set_axis_off()
    axes.set(xlim=(-2.4, 38.5), ylim=(size + 0.75, -1.25), aspect="auto")
    for left, heading in ((0, "data parallel"), (20.5, "sharded, while layer 1 computes")):
        axes.text(left, -0.75, heading, fontsize=9, fontweight="bold", va="center")
        for layer in range(layers):
            begin = left + 4.5 * layer
            axes.text(begin + 2, size + 0.15, f"layer {layer}", fontsize=8, ha="center", va="top")
            for rank in range(size):
                for chunk in range(size):
                    own = left == 0 or chunk == rank
                    look = {"facecolor": TINTS[chunk], "edgecolor": _OWN}
                    if not own and layer == computing:
                        look = {"facecolor": TINTS[chunk], "edgecolor": _FETCHED, "hatch": "////"}
                    elif not own:
                        look = {"facecolor": "white", "edgecolor": "#D0D0D0", "linestyle": ":"}
                    axes.add_patch(Rectangle((begin + chunk, rank), 1, 0.72, linewidth=0.8, **look))
    for rank in range(size):
        axes.text(-0.4, rank + 0.36, f"rank {rank}", fontsize=8, ha="right", va="center")


def flat_vector(sizes: Mapping[str, int], shards: int) -> None:
    """Draw a flat vector: its parameters, with names and numbers of elements, and below them the shards."""
    padding = -sum(sizes.values()) % shards
    length = sum(sizes.values()) + padding
    axes = new_axes("The borders of the shards ignore the borders of the parameters", width=7.2, height=1.9)
    axes.grid(False)
    left = 0
    for (name, size), tint in zip(sizes.items(), TINTS, strict=False):
        axes.barh(1, size, left=left, height=0.8, color=tint, edgecolor="white")
        axes.text(left + size / 2, 1, f"{name}: {size}", ha="center", va="center", fontsize="small")
        left += size
    if padding:
        axes.barh(1, padding, left=left, height=0.8, facecolor="white", edgecolor="#767676", hatch="xxx")
        where = {"textcoords": "offset points", "ha": "right", "fontsize": "small"}
        axes.annotate(f"padding: {padding}", (length, 1.4), (0, 4), **where)
    shard = length // shards
    for rank in range(shards):
        axes.barh(0, shard, left=rank * shard, height=0.8, color="#E9E9E9", edgecolor="white")
        axes.text((rank + 0.5) * shard, 0, f"rank {rank}: {shard}", ha="center", va="center", fontsize="small")
        if rank:
            axes.plot([rank * shard] * 2, [-0.4, 1.4], **GUIDE)
    axes.set_xlim(0, length)
    axes.set_ylim(-0.5, 2)
    axes.axis("off")


def step_ledgers(ledgers: Mapping[str, Sequence[tuple[str, Sequence[int]]]], whole: int) -> None:
    """Draw the bytes that a rank holds during a step, a panel for each variant.

    `ledgers` maps the name of a variant to its moments in order. A moment has a name, such as "forward 0", and the
    bytes of parameters, gradients, optimizer's state and a flat copy of gradients. `whole`, the size of all
    parameters, is the unit of the heights.
    """
    columns = 2
    rows = -(-len(ledgers) // columns)
    figure, panels = subplots(rows, columns, figsize=(7.6, 0.8 + 2.1 * rows), sharey=True, squeeze=False)
    title = "Each stage of ZeRO shards one more kind of memory"
    figure.suptitle(title, x=0.01, ha="left", fontsize="medium", fontweight="bold")
    for panel in panels.flat[len(ledgers) :]:
        panel.axis("off")
    for panel, (name, moments) in zip(panels.flat, ledgers.items(), strict=False):
        _ledger(panel, name, moments, whole)
    for row in panels:
        row[0].set_ylabel("times B")
    handles, labels = panels.flat[0].get_legend_handles_labels()
    look = {"ncols": len(labels), "frameon": False, "fontsize": "small"}
    figure.legend(handles, labels, loc="outside lower center", **look)


def _ledger(axes, name, moments, whole):
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#E0E0E0", axis="y")
    axes.set_axisbelow(True)
    bottom = [0.0] * len(moments)
    for kind, (column, look) in _KINDS.items():
        heights = [sizes[column] / whole for _, sizes in moments]
        axes.bar(range(len(moments)), heights, bottom=bottom, width=1, label=kind, linewidth=0.4, **look)
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    most = max(bottom)
    axes.axhline(most, **GUIDE)
    axes.set_title(f"{name}: peak {most:.2f} B", loc="left", fontsize="small", fontweight="bold")
    axes.set_xticks([])
    axes.set_ylim(0, 1.02 * max(axes.get_ylim()[1], most))
    axes.set_xlim(-0.5, len(moments) - 0.5)
    for phase, numbers in groupby(enumerate(_phases([at for at, _ in moments])), lambda pair: pair[1]):
        places = [place for place, _ in numbers]
        middle = (places[0] + places[-1]) / 2
        axes.annotate(phase, (middle, 0), (0, -4), textcoords="offset points", ha="center", va="top", fontsize=8)
        if places[0]:
            axes.axvline(places[0] - 0.5, color="#404040", linewidth=0.8)


def _phases(moments):
    """Return the phase of each moment; a flat copy belongs to backward if a gradient becomes complete after it."""
    last = max((place for place, at in enumerate(moments) if at.startswith("backward")), default=-1)
    early = any(at.startswith("copy") for at in moments[:last])
    names = []
    for place, at in enumerate(moments):
        kind = at.split()[0]
        if kind == "copy":
            kind = "backward" if early or place < last else "update"
        names.append(kind)
    return names


def peaks_over_ranks(sizes: Sequence[int], peaks: Mapping[str, Sequence[float]], measured: Mapping[str, float]) -> None:
    """Draw the peak memory of each variant over the number of ranks, in multiples of B.

    `peaks` maps a variant to its peak by the formula for each number of ranks in `sizes`. `measured` maps the same
    variants to the peak of this world, preceded by an entry "n", its number of ranks.
    """
    axes = new_axes("Only ZeRO-3 gets below one copy of the model", height=3.6)
    for name, values in peaks.items():
        look = _CURVES[name]
        axes.plot(sizes, values, linewidth=2, **look)
        axes.plot([measured["n"]], [measured[name]], marker="o", markersize=7, color=look["color"], zorder=3)
        label = f"{name}: {values[-1]:.2f} B"
        where = {"textcoords": "offset points", "va": "center", "fontsize": "small", "color": look["color"]}
        axes.annotate(label, (sizes[-1], values[-1]), (6, 0), **where)
    note(axes, f"dots: measured with {measured['n']} ranks", (measured["n"], measured["data parallel"]), (8, -14))
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.set(xlabel="ranks", ylabel="peak of a rank (times B)", ylim=(0, None))


def fetched_layers(title: str, steps: Mapping[str, Sequence[Interval]]) -> None:
    """Draw steps of one rank, layer by layer: what it computes and where it waits, above its all-gathers and rings.

    `steps` maps a heading to the intervals of a step, as `timeline.recorded` lists them, with "forward 0" for the
    forward pass of layer 0. The collectives are the all-gathers, and all messages belong to rings of reduce-scatters.
    Each step begins at 0, and all steps share one axis.
    """
    height = len(_LANES) + 1.4
    axes = new_axes(title, width=7.6, height=1.2 + 0.3 * height * len(steps))
    axes.grid(False, axis="y")
    for number, (heading, intervals) in enumerate(steps.items()):
        top, origin = height * number, min(interval.begin for interval in intervals)
        axes.text(0, top - 0.15, heading, fontsize="small", fontweight="bold")
        for interval in intervals:
            if interval.name == "backward":  # of all layers together
                continue
            kind, _, layer = _kind_of(interval.name).partition(" ")
            lane, look = _BARS[kind]
            begin, end = 1e3 * (interval.begin - origin), 1e3 * (interval.end - origin)
            place = (begin, top + lane)
            edge = {"edgecolor": "none" if kind == "reduce-scatter" else "white" if kind == "all-gather" else "#404040"}
            axes.add_patch(Rectangle(place, end - begin, 0.85, linewidth=0.5, **look, **edge))
            if layer:
                colour = "white" if kind == "backward" else "black"
                axes.text((begin + end) / 2, top + 0.45, layer, fontsize=7, ha="center", va="center", color=colour)
        end = 1e3 * (max(interval.end for interval in intervals) - origin)
        axes.plot([end] * 2, [top - 0.1, top + 2.95], color="#404040", linewidth=1)
        note(axes, f"{end:.0f} ms", (end, top + 0.45), (4, -3))
    axes.set_ylim(height * len(steps) - 0.6, -1)
    axes.autoscale_view(scaley=False)
    axes.set_xlim(0, 1.1 * max(line.get_xdata()[0] for line in axes.lines))
    places = [height * number + lane + 0.45 for number in range(len(steps)) for lane in range(len(_LANES))]
    axes.set_yticks(places, _LANES * len(steps), fontsize="small")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("time since the step began (ms)")
    shown = {"forward": "forward of a layer", "backward": "backward of a layer", "wait": "waits for an all-gather"}
    handles = [
        Patch(label=label, edgecolor="#404040", linewidth=0.5, **_BARS[kind][1]) for kind, label in shown.items()
    ]
    axes.figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize="small")


def _kind_of(name):
    if "all" in name and "gather" in name:
        return "all-gather"
    return "reduce-scatter" if ":" in name else name
