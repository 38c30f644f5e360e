"""The one style of the figures: colours and looks, axes, and how sizes and durations are written."""

import io

import PIL.Image
from IPython import get_ipython
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

# Of the colours of Okabe and Ito, which people with any kind of colour vision tell apart.
BLUE, RED, GREEN = "#0072B2", "#D55E00", "#009E73"

# Light tints of these and of grey, one for each of 8 ranks, on which a number in black can be read.
TINTS = ("#7FB8D8", "#F2CF7F", "#7FCEB9", "#E5BCD3", "#D9D9D9", "#EAAE7F", "#F7F1A0", "#C6E3F6")

# What a series is says how it looks, and no two of them differ by colour alone.
MEASURED = {"color": BLUE, "marker": "o", "linestyle": "", "markersize": 7, "zorder": 3}
MODEL = {"color": RED, "linestyle": "-", "linewidth": 2}
LIMIT = {"color": GREEN, "marker": "s", "linestyle": "--", "linewidth": 2, "markersize": 5}
GUIDE = {"color": "#767676", "linestyle": ":", "linewidth": 1.5}


class SmallFigure(Figure):
    """A figure that a notebook stores with 128 colours, in a third of the bytes, and looking the same."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if shell := get_ipython():
            shell.display_formatter.formatters["image/png"].for_type(SmallFigure, png)

    def __repr__(self):
        return super().__repr__().replace("SmallFigure", "Figure")


def png(figure: Figure) -> bytes:
    """Return the PNG of a figure with 128 colours."""
    with io.BytesIO() as drawn, io.BytesIO() as small:
        figure.savefig(drawn, format="png", bbox_inches="tight")
        PIL.Image.open(drawn).convert("RGB").quantize(128).save(small, format="png", optimize=True)
        return small.getvalue()


def new_axes(title: str, width: float = 7.2, height: float = 4.4) -> Axes:
    """Return the axes of a new figure, of this size in inches, which a notebook shows when the cell ends."""
    # White also where JupyterLab is dark.
    look = {"dpi": 110, "layout": "constrained", "facecolor": "white"}
    _, axes = plt.subplots(figsize=(width, height), FigureClass=SmallFigure, **look)
    axes.set_title(title, loc="left", pad=12, fontsize="medium", fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#E0E0E0")
    axes.set_axisbelow(True)
    return axes


def note(axes: Axes, text: str, place: tuple[float, float], shift: tuple[float, float]) -> None:
    """Write a text beside a place of the data, shifted by so many points to the right and up."""
    axes.annotate(text, place, shift, textcoords="offset points", color="#404040")


def label_sizes(axis: Axis) -> None:
    """Label a logarithmic axis of bytes in B, KiB, MiB and GiB."""
    axis.set_major_locator(LogLocator(base=16, subs=[4], numticks=20))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda size, _: data_size(size)))


def label_durations(axis: Axis) -> None:
    """Label a logarithmic axis of seconds in µs, ms and s."""
    axis.set_major_locator(LogLocator(base=10, numticks=20))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda seconds, _: duration(seconds)))


def data_size(size: float) -> str:
    """Return a number of bytes with a unit, as in 64 KiB."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1000:
            return f"{_digits(size)} {unit}"
        size /= 1024
    return f"{_digits(size)} GiB"


def duration(seconds: float) -> str:
    """Return a number of seconds with a unit, as in 50 µs."""
    for unit, factor in (("s", 1), ("ms", 1e3)):
        if seconds * factor >= 0.995:
            return f"{_digits(seconds * factor)} {unit}"
    return f"{_digits(seconds * 1e6)} µs"


def _digits(number):
    return f"{number:.0f}" if number >= 9.95 else f"{number:.2g}"
