"""Figures that are drawn again whenever the reader moves a control."""

from collections.abc import Callable

from IPython.display import Image, display
from ipywidgets import ValueWidget, VBox
from matplotlib import pyplot as plt

from helpers.plots.style import png


def live(draw: Callable[..., None], **controls: ValueWidget) -> None:
    """Show controls and the figure of `draw(name=value, ...)`, drawn again whenever one of the values changes.

    `controls` are the widgets that set the arguments of `draw`, by name. The first figure is kept in the notebook, so
    it shows also where there is no kernel to draw another one.
    """

    def picture():
        draw(**{name: control.value for name, control in controls.items()})
        drawn, size = png(plt.gcf())
        plt.close()
        return Image(drawn, **size)

    display(VBox(list(controls.values())))
    # No Output widget: this is replaced in place, without a flicker, and is an ordinary output of the cell.
    shown = display(picture(), display_id=True)
    for control in controls.values():
        control.observe(lambda change: shown.update(picture()), "value")
