"""Figures that are drawn again whenever the reader moves a control."""

from collections.abc import Callable

from IPython.display import Image, display
from ipywidgets import ValueWidget, VBox
from matplotlib import pyplot as plt

from helpers.plots.style import png


def live(draw: Callable[..., None], **controls: ValueWidget) -> None:
    """Show controls and the figure of `draw(name=value, ...)`, drawn again whenever one of the values changes.

    `controls` are the widgets that set the arguments of `draw`, by name. The first figure is stored in the notebook, so
    it is visible even without a kernel that could draw another figure.
    """

    def picture():
        draw(**{name: control.value for name, control in controls.items()})
        drawn, size = png(plt.gcf())
        plt.close()
        return Image(drawn, **size)

    display(VBox(list(controls.values())))
    # An ordinary output of the cell, not an Output widget, so that it is replaced in place without flicker.
    shown = display(picture(), display_id=True)
    for control in controls.values():
        control.observe(lambda change: shown.update(picture()), "value")
