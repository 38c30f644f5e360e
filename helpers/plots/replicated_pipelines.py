"""Figures of 36_replicated_pipelines: pipelines side by side, and a step's time for each way to split the ranks."""

from collections.abc import Mapping

from matplotlib.patches import FancyBboxPatch

from helpers.plots.style import BLUE, RED, TINTS, new_axes, subplots

_GREY = "#404040"
_ACROSS, _DOWN = 5.0, 1.6  # between two stages, and between two pipelines


def replicated_stages(pipelines: int) -> None:
    """Draw pipelines of two stages: messages across each pipeline, and an all-reduce for the replicas of each stage."""
    axes = new_axes("Each stage has replicas, and each pipeline its shard of the batch", height=0.9 + 1.1 * pipelines)
    axes.set_axis_off()
    low = _DOWN * (pipelines - 1)
    axes.set(xlim=(-3.4, _ACROSS + 1.6), ylim=(low + 1.0, -0.8))
    for stage in range(2):
        place = stage * _ACROSS
        band = FancyBboxPatch(
            (place - 1.15, -0.6), 2.3, low + 1.2, boxstyle="round,pad=0.05", facecolor="none", edgecolor=RED
        )
        band.set_linestyle("--")
        axes.add_patch(band)
        axes.text(place, low + 0.86, "DDP: one all-reduce group", ha="center", color=RED, fontsize=9)
        for pipeline in range(pipelines):
            rank = 2 * pipeline + stage
            look = {"boxstyle": "round,pad=0.4", "facecolor": TINTS[rank % 8], "edgecolor": _GREY}
            text = f"rank {rank}\nstage {stage}"
            axes.text(place, _DOWN * pipeline, text, ha="center", va="center", fontsize=9, bbox=look, zorder=3)
    for pipeline in range(pipelines):
        height = _DOWN * pipeline
        axes.text(-1.5, height, f"shard {pipeline}\nof the batch", ha="right", va="center", color=_GREY, fontsize=9)
        for shift, begin, end, text, colour, style in (
            (-0.14, 1.3, _ACROSS - 1.3, "activations", BLUE, "-"),
            (0.14, _ACROSS - 1.3, 1.3, "gradients of activations", BLUE, "--"),
        ):
            arrow = {"arrowstyle": "->", "linewidth": 1.5, "color": colour, "linestyle": style}
            axes.annotate("", (end, height + shift), (begin, height + shift), arrowprops=arrow)
            above = shift < 0
            axes.text(
                _ACROSS / 2,
                height + (-0.2 if above else 0.2),
                text,
                ha="center",
                va="bottom" if above else "top",
                color=colour,
                fontsize=9,
            )


def times_of_splits(predicted: Mapping[str, Mapping[str, float]], measured: Mapping[str, Mapping[str, float]]) -> None:
    """Draw the predicted and the measured seconds of a step as bars: a panel for each case, a row for each split."""
    figure, panels = subplots(1, len(predicted), figsize=(7.6, 2.6), sharey=True)
    figure.suptitle(
        "The split that sends fewer bytes has the shorter step", x=0.01, ha="left", fontsize="medium", weight="bold"
    )
    for axes, (case, times) in zip(panels, predicted.items(), strict=True):
        longest = max(*times.values(), *measured[case].values())
        for row, name in enumerate(times):
            for shift, seconds, look in (
                (-0.2, times[name], {"facecolor": "white", "edgecolor": RED, "hatch": "////"}),
                (0.2, measured[case][name], {"facecolor": BLUE, "edgecolor": BLUE}),
            ):
                axes.barh(row + shift, 1e3 * seconds, height=0.36, **look)
                what = "predicted" if shift < 0 else "measured"
                text = f"{1e3 * seconds:.0f} {what}"
                axes.text(1e3 * seconds + 12 * longest, row + shift, text, va="center", fontsize="x-small", color=_GREY)
        axes.set_xlim(0, 1e3 * longest * 1.45)
        axes.set_title(case, loc="left", fontsize="small")
        axes.set_yticks(range(len(times)), list(times), fontsize="small")
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlabel("step time (ms)")
    panels[0].invert_yaxis()
