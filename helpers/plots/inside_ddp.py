"""Figures of 10_inside_ddp: the buckets of DistributedDataParallel, and what their size costs."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from helpers.plots.style import BLUE, MEASURED, MODEL, RED, TINTS, new_axes, note, subplots

_GAP = 0.03  # between buckets, as a fraction of all bytes
_HEIGHT = 0.5
_LEAST = 0.08  # a name fits into a bar above this fraction of all bytes
_LAYERS, _IN_A_BUCKET = 6, 3  # of the sketch
_LIMIT = {"color": RED, "linewidth": 2.2, "zorder": 4}
_ARROW = {"arrowstyle": "-|>", "color": "#404040", "linewidth": 1}


def hook_of_ddp() -> None:
    """Draw a sketch of the way of the gradients: from the backward pass through a bucket and a hook to the averages."""
    axes = new_axes("DDP gives each full bucket to a communication hook", width=7.8, height=2.8)
    axes.set_axis_off()
    axes.set(xlim=(-0.1, 13.6), ylim=(4.3, -0.9))
    axes.text(0, -0.2, "backward pass", fontsize=8, va="bottom", color=BLUE)
    for place in range(_LAYERS):
        bucket, slot = divmod(place, _IN_A_BUCKET)
        colour = TINTS[bucket]
        _box(axes, f"layer {_LAYERS - place}", 1.15 * place, 0, 1.1, {"facecolor": colour})
        _box(axes, f"{_LAYERS - place}", 1.2 + 0.6 * slot + 3.45 * bucket, 2.2, 0.6, {"facecolor": colour})
        begin, end = (1.15 * place + 0.55, 0.85), (1.5 + 0.6 * slot + 3.45 * bucket, 2.15)
        axes.annotate("", end, begin, arrowprops=_ARROW)
        if slot == 0:
            left = 1.2 + 3.45 * bucket
            frame = Rectangle((left, 2.2), 0.6 * _IN_A_BUCKET, 0.8, fill=False, linewidth=1.8, zorder=3)
            axes.add_patch(frame)
            axes.text(left + 0.9, 3.15, f"bucket {bucket}", fontsize=8, ha="center", va="top")
    around = _ARROW | {"connectionstyle": "arc3,rad=0.22"}
    axes.annotate("", (8.2, 3.05), (3.05, 2.9), arrowprops=around)
    way = [("communication\nhook", 7.6, 1.9), ("all-reduce\nof all ranks", 9.9, 1.6), ("averages\nin grad", 11.9, 1.4)]
    for name, left, width in way:
        _box(axes, name, left, 2.2, width, {"facecolor": TINTS[7] if left < 9 else TINTS[4]})
        axes.annotate("", (left, 2.6), (left - 0.4 if left > 8 else 6.5, 2.6), arrowprops=_ARROW)


def buckets(title: str, rows: Mapping[str, Sequence[Mapping[str, int]]], limit: int | None = None) -> None:
    """Draw the buckets of each row, from left to right in the order in which they are sent, each with its MiB.

    `rows` maps the name of a row to its buckets; a bucket maps the names of its parameters to their bytes, in the order
    of the bucket. The parameters of a layer, whose names are the same up to the last dot, are drawn as one block. If
    `limit` is given, a red line marks the place where a bucket has reached this number of bytes.
    """
    axes = new_axes(title, height=0.9 + 0.8 * len(rows))
    axes.grid(False)
    total = max(sum(sum(bucket.values()) for bucket in row) for row in rows.values())
    layers = sorted({_layer(name) for row in rows.values() for bucket in row for name in bucket})
    tints = {layer: TINTS[number % len(TINTS)] for number, layer in enumerate(layers)}
    for place, row in enumerate(rows.values()):
        left = 0.0
        for bucket in row:
            size = sum(bucket.values())
            _draw(axes, _by_layer(bucket), left, place - _HEIGHT / 2, tints, total)
            if limit and size >= limit:
                axes.vlines(left + limit, place - _HEIGHT / 2 - 0.08, place + _HEIGHT / 2 + 0.08, **_LIMIT)
            left += size + _GAP * total
    most = max(map(len, rows.values()))
    axes.set_xlim(-0.005 * total, total * (1.005 + _GAP * (most - 1)))
    axes.set_ylim(len(rows) - 0.45, -0.6)
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(axis="y", length=0)
    axes.set_xticks([])
    axes.spines[["left", "bottom"]].set_visible(False)
    marks = f", a red line is the limit of {limit / 2**20:g} MiB" if limit else ""
    axes.set_xlabel(f"sent first  →  sent last; a frame is a bucket, a tint is a layer{marks}")


def bucket_costs(panels: Mapping[str, tuple[Mapping[int, float], Mapping[int, float]]]) -> None:
    """Draw the exposed communication against the number of equal buckets, one panel for each setting.

    `panels` maps the name of a setting to two mappings from the number of buckets to exposed seconds: by the model,
    drawn as a line, and measured, drawn as points. If nothing was measured, the model's best number is labelled.
    """
    figure, all_axes = subplots(1, len(panels), figsize=(7.8, 3.1))
    title = "Too few buckets expose communication, and so do too many"
    figure.suptitle(title, x=0.02, ha="left", fontweight="bold", fontsize="medium")
    for axes, (name, (modelled, measured)) in zip(all_axes, panels.items(), strict=True):
        axes.set_title(name, fontsize="small")
        axes.plot(list(modelled), [1e3 * seconds for seconds in modelled.values()], **MODEL)
        axes.plot(list(measured), [1e3 * seconds for seconds in measured.values()], **MEASURED)
        for label, series, number in (("model", modelled, 1), ("measured", measured, 0)):
            if len(series) > number:
                place = list(series)[number], 1e3 * list(series.values())[number]
                note(axes, label, place, (9, 6))
        if not measured:
            best = min(modelled, key=modelled.get)
            axes.annotate(
                f"least: {best} buckets",
                (best, 1e3 * modelled[best]),
                (-40, 30),
                textcoords="offset points",
                ha="center",
                fontsize="small",
                arrowprops=_ARROW,
            )
        axes.set_xscale("log", base=2)
        axes.set_ylim(0, 1.1e3 * max([*modelled.values(), *measured.values()]))
        axes.xaxis.set_major_formatter(lambda count, _: f"{count:g}")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#E0E0E0")
        axes.set_xlabel("number of buckets")
    all_axes[0].set_ylabel("exposed communication (ms)")


def _box(axes, name, left, top, width, look):
    axes.add_patch(Rectangle((left, top), width, 0.8, edgecolor="#404040", linewidth=0.8, **look))
    axes.text(left + width / 2, top + 0.4, name, ha="center", va="center", fontsize=8)


def _draw(axes: Axes, layers, left, top, tints, total):
    """Draw a bucket, given as the bytes of its layers, beginning at `left`."""
    begin = left
    for layer, size in layers.items():
        axes.add_patch(Rectangle((left, top), size, _HEIGHT, facecolor=tints[layer]))
        inside = size > _LEAST * total
        place = (left + size / 2, top + _HEIGHT / 2) if inside else (left, top - 0.03)
        look = {"ha": "center", "va": "center"} if inside else {"ha": "left", "va": "bottom"}
        axes.text(*place, layer, fontsize="small", **look)
        left += size
    axes.add_patch(Rectangle((begin, top), left - begin, _HEIGHT, fill=False, linewidth=1.6))
    text = f"{sum(layers.values()) / 2**20:.2f} MiB"
    axes.text((begin + left) / 2, top + _HEIGHT + 0.04, text, ha="center", va="top", fontsize="small")


def _by_layer(bucket):
    """Return the bytes of each layer of a bucket, in the order of the layers' first parameters."""
    layers = {}
    for name, size in bucket.items():
        layers[_layer(name)] = layers.get(_layer(name), 0) + size
    return layers


def _layer(name):
    return name.rpartition(".")[0] or name
