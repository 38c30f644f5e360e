"""Figures of 15_cartpole_solved: steps per second, a training as it goes on, and an episode in pictures."""

import math
from collections.abc import Mapping, Sequence

from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from helpers.plots.style import BLUE, LIMIT, MODEL, RED, SmallFigure, new_axes, note

_TRACK = 2.4  # the cart's place, either side of the middle, at which an episode ends


def paces(versions: Mapping[str, tuple[float, float]]) -> None:
    """Draw environment steps per second of each version, with its factor over the first one.

    `versions[title]` holds steps per second and RPCs per step.
    """
    axes = new_axes("Fewer RPCs per step, more steps per second", height=1.1 + 0.5 * len(versions))
    first = next(iter(versions.values()))[0]
    for place, (steps, rpcs) in enumerate(versions.values()):
        axes.barh(place, steps, color=BLUE, height=0.6)
        calls = "1 RPC" if f"{rpcs:.2g}" == "1" else f"{rpcs:.2g} RPCs"
        note(axes, f"{steps / first:.3g} × version 1, {calls} per step", (steps, place), shift=(6, -4))
    axes.set_yticks(range(len(versions)), versions)
    axes.invert_yaxis()
    axes.set_xlim(0, 2 * max(steps for steps, _ in versions.values()))
    axes.grid(False, axis="y")
    axes.set_xlabel("environment steps per second")


def training_curve(rewards: Sequence[float], running: Sequence[float], threshold: float) -> Figure:
    """Return the curve of a training: the reward of each episode, the running reward, and its threshold."""
    axes = new_axes("The running reward has to pass the threshold", height=3.6)
    plt.close(axes.figure)  # whoever draws it again and again shows it
    episodes = range(1, len(rewards) + 1)
    axes.plot(episodes, rewards, ".", color=BLUE, alpha=0.4, markersize=3, label="reward of an episode")
    axes.plot(episodes, running, label="running reward", **MODEL)
    axes.axhline(threshold, label=f"threshold: {threshold:g}", **{**LIMIT, "marker": ""})
    axes.set_xlabel("finished episodes")
    axes.set_ylabel("reward (steps)")
    axes.set_ylim(0, 520)
    axes.figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return axes.figure


def filmstrips(episodes: Mapping[str, Sequence[Sequence[float]]], pictures: int = 6) -> None:
    """Draw a row of pictures for each episode of CartPole, from its first to its last observation.

    An observation is the cart's place, its speed, the pole's angle from upright (radians) and its speed. As in
    gymnasium the pole is 1 long, in the unit of the cart's place.
    """
    _, rows = plt.subplots(
        len(episodes),
        pictures,
        figsize=(8.4, 0.9 * len(episodes) + 0.2),
        dpi=110,
        layout="constrained",
        facecolor="white",
        FigureClass=SmallFigure,
        squeeze=False,
    )
    for row, (title, observations) in zip(rows, episodes.items(), strict=True):
        row[0].set_ylabel(title)
        for number, axes in enumerate(row):
            step = round(number * (len(observations) - 1) / (pictures - 1))
            _draw_cart(axes, *observations[step])
            axes.set_title(f"step {step + 1}", fontsize="small")


def _draw_cart(axes, place, _, angle, __):
    axes.axhline(0, color="#404040", linewidth=1)
    axes.add_patch(Rectangle((place - 0.3, 0), 0.6, 0.3, color=BLUE))
    axes.plot([place, place + math.sin(angle)], [0.3, 0.3 + math.cos(angle)], color=RED, linewidth=4)
    axes.set(xlim=(-_TRACK, _TRACK), ylim=(-0.2, 1.5), aspect="equal", xticks=[], yticks=[])
    axes.spines[:].set_color("#C0C0C0")
