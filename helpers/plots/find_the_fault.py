"""The figure of 52_find_the_fault: which tool to take for which symptom."""

from matplotlib.patches import Rectangle

from helpers.plots.style import TINTS, new_axes

_QUESTIONS = {  # in the order in which to ask them, and the tool if the answer is yes
    "Is a rank still running?": "world.where(), then world.history()",
    "Did a rank raise an error?": "world.post_mortem(rank)",
    "Do numbers differ between the ranks?": 'world.view["name"] after each step',
    "Do they differ from one process?": "the next step by hand, in a %%px cell",
    "Are there too many bytes?": "world.history() counts the calls",
}


def tool_for_symptom() -> None:
    """Draw a column of questions about a run, and next to each question the tool if the answer is yes."""
    axes = new_axes("The symptom decides which tool comes first", height=3.6)
    axes.set_axis_off()
    axes.set(xlim=(0, 10), ylim=(len(_QUESTIONS) - 0.2, -0.2))
    arrow = {"arrowstyle": "-|>", "color": "#404040", "linewidth": 1.2}
    for row, (question, tool) in enumerate(_QUESTIONS.items()):
        for left, width, text, colour in ((0.1, 4.0, question, TINTS[1]), (5.6, 4.3, tool, TINTS[0])):
            axes.add_patch(Rectangle((left, row), width, 0.55, facecolor=colour, edgecolor="black", linewidth=0.8))
            axes.text(left + width / 2, row + 0.275, text, ha="center", va="center", fontsize="small")
        axes.annotate("", (5.6, row + 0.275), (4.1, row + 0.275), arrowprops=arrow)
        axes.text(4.85, row + 0.2, "yes", ha="center", va="bottom", fontsize="small")
        if row < len(_QUESTIONS) - 1:
            axes.annotate("", (2.1, row + 1), (2.1, row + 0.55), arrowprops=arrow)
            axes.text(2.25, row + 0.775, "no", ha="left", va="center", fontsize="small")
