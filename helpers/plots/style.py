"""The common style of the figures: colours and looks, axes, and the format of sizes and durations."""

import io
from collections.abc import Sequence

import PIL.Image
from IPython import get_ipython
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

# Colours of Okabe and Ito, which people with any kind of colour vision can tell apart.
BLUE, RED, GREEN = "#0072B2", "#D55E00", "#009E73"

# Light tints of Okabe and Ito's colours and of grey, one for each of 8 ranks, on which a black number is readable.
TINTS = ("#7FB8D8", "#F2CF7F", "#7FCEB9", "#E5BCD3", "#D9D9D9", "#EAAE7F", "#F7F1A0", "#C6E3F6")

# Dark variants of the tints, for lines on white, in the same order.
SHADES = ("#0072B2", "#B8860B", "#009E73", "#CC79A7", "#767676", "#D55E00", "#8F8600", "#3C8FC2")

# The look of a series depends on its kind, and no two kinds differ only by colour.
MEASURED = {"color": BLUE, "marker": "o", "linestyle": "", "markersize": 7, "zorder": 3}
MODEL = {"color": RED, "linestyle": "-", "linewidth": 2}
LIMIT = {"color": GREEN, "marker": "s", "linestyle": "--", "linewidth": 2, "markersize": 5}
GUIDE = {"color": "#767676", "linestyle": ":", "linewidth": 1.5}

DENSITY = 2  # pixels of a stored figure for each pixel of the page, so that it is sharp on today's screens


class SmallFigure(Figure):
    """A figure that a notebook stores in high resolution and in few bytes; see `png`."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if shell := get_ipython():
            shell.display_formatter.formatters["image/png"].for_type(SmallFigure, png)

    def __repr__(self):
        return super().__repr__().replace("SmallFigure", "Figure")


def png(figure: Figure) -> tuple[bytes, dict[str, int]]:
    """Return a figure as PNG, and the width and height in pixels of the page at which the figure is shown.

    The PNG has 64 colours, and twice as many pixels in each direction as the page, like IPython's "retina" format.
    """
    with io.BytesIO() as drawn, io.BytesIO() as small:
        figure.savefig(drawn, format="png", bbox_inches="tight", dpi=DENSITY * figure.dpi)
        # MAXCOVERAGE keeps the colour of a thin line, which few pixels have; kmeans keeps the other colours.
        picture = PIL.Image.open(drawn).convert("RGB").quantize(64, PIL.Image.Quantize.MAXCOVERAGE, kmeans=1)
        picture.save(small, format="png", optimize=True)
        return small.getvalue(), {"width": picture.width // DENSITY, "height": picture.height // DENSITY}


def subplots(*rows_and_columns: int, **options) -> tuple[Figure, Axes]:
    """Return a new figure and its axes, as `plt.subplots` does, in the common style of the course's figures."""
    # White even in JupyterLab's dark theme. A page has 96 pixels per inch, so font sizes are correct.
    look = {"dpi": 96, "layout": "constrained", "facecolor": "white", "FigureClass": SmallFigure}
    return plt.subplots(*rows_and_columns, **(look | options))


def new_axes(title: str, width: float = 7.2, height: float = 4.4) -> Axes:
    """Return the axes of a new figure of this size in inches, which a notebook shows when the cell ends."""
    _, axes = subplots(figsize=(width, height))
    axes.set_title(title, loc="left", pad=12, fontsize="medium", fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#E0E0E0")
    axes.set_axisbelow(True)
    return axes


def note(axes: Axes, text: str, place: tuple[float, float], shift: tuple[float, float]) -> None:
    """Write a text near a point of the data, shifted to the right and up by `shift`, in typographic points."""
    axes.annotate(text, place, shift, textcoords="offset points", color="#404040")


def arrow_of_rank(axes: Axes, begin: tuple[float, float], end: tuple[float, float], rank: int) -> None:
    """Draw an arrow in the colour of a rank."""
    look = {"arrowstyle": "-|>", "linewidth": 1, "color": SHADES[rank % len(SHADES)], "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, begin, arrowprops=look)


def label_rows(axes: Axes, places: Sequence[float], names: Sequence[str]) -> None:
    """Name the rows of a timeline, whose times begin at 0, by small labels without ticks."""
    axes.set_xlim(left=0)
    axes.set_yticks(places, names, fontsize="small")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


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
