"""Figures of 23_cartpole_solved: the idea, steps per second, the progress of a training, and the angle of the pole."""

import math
from collections.abc import Mapping, Sequence

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch, Rectangle
from matplotlib.ticker import MaxNLocator

from helpers.plots.style import BLUE, GREEN, LIMIT, MEASURED, MODEL, RED, new_axes, note, subplots

_LEAN = 12  # degrees, either side of upright, at which an episode ends


def one_message_for_many() -> None:
    """Draw a sketch of one step: an observer with one environment, and one with many, each with its two arrows."""
    axes = new_axes("One message can carry the observations of many environments", height=2.9)
    axes.set_axis_off()
    axes.set(xlim=(0, 12), ylim=(-0.1, 4.6), aspect="equal")
    _box(axes, (4.3, 3.3), (3.4, 1.1), "agent: the policy")
    _box(axes, (0.2, 0), (3.2, 1.3), "")
    _box(axes, (6.4, 0), (5.4, 1.3), "")
    _cart(axes, 1.4, 0.3, tilt=12)
    for place, tilt in enumerate((12, -8, 20, -15, 5, -22)):
        _cart(axes, 6.6 + 0.85 * place, 0.3, tilt)
    note(axes, "observer with one environment", (0.2, 0), (0, -13))
    note(axes, "observer with many environments", (6.4, 0), (0, -13))
    for below, above, texts, side in (
        (1.6, 4.9, ("4 values", "1 action"), -1),
        (9.0, 7.1, ("4 values for each\nenvironment", "an action for each\nenvironment"), 1),
    ):
        for text, colour, up, shift in ((texts[0], RED, True, 0.0), (texts[1], BLUE, False, 0.7 * side)):
            ends = ((below + shift, 1.45), (above + shift, 3.2))
            arrow = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", ends[up], ends[not up], arrowprops=arrow)
            outside = (shift != 0) == (side > 0)
            middle = (sum(x for x, _ in ends) / 2 + (0.5 if outside else -0.5), 2.3)
            axes.text(*middle, text, ha="left" if outside else "right", va="center", fontsize=9, color=colour)


def _box(axes: Axes, corner, size, text):
    box = {"boxstyle": "round,pad=0.05", "facecolor": "white", "edgecolor": "#404040"}
    axes.add_patch(FancyBboxPatch(corner, *size, **box))
    axes.text(corner[0] + size[0] / 2, corner[1] + size[1] / 2, text, ha="center", va="center", fontsize=9)


def _cart(axes: Axes, left, bottom, tilt):
    """Draw a cart with two wheels, and its pole at an angle in degrees."""
    axes.add_patch(Rectangle((left, bottom), 0.6, 0.22, facecolor="#404040"))
    for wheel in (0.14, 0.46):
        axes.add_patch(Circle((left + wheel, bottom - 0.04), 0.08, facecolor="#404040"))
    foot, angle = (left + 0.3, bottom + 0.2), math.radians(tilt)
    axes.plot([foot[0], foot[0] + 0.7 * math.sin(angle)], [foot[1], foot[1] + 0.7 * math.cos(angle)], color=GREEN, lw=3)


def paces(versions: Mapping[str, tuple[float, float]]) -> None:
    """Draw the environment steps per second of each version, with its speed-up over the first version.

    `versions[title]` has steps per second and RPCs per step.
    """
    axes = new_axes("Many environments per RPC make many times more steps per second", height=1.1 + 0.5 * len(versions))
    axes.grid(False, axis="y")
    first = next(iter(versions.values()))[0]
    for place, (steps, rpcs) in enumerate(versions.values()):
        axes.plot(steps, place, **MEASURED)
        calls = "1 RPC" if f"{rpcs:.2g}" == "1" else f"{rpcs:.2g} RPCs"
        speed_up = f"{steps / first:.2g} × as fast, " if place else ""
        note(axes, f"{speed_up}{calls} per step", (steps, place), shift=(10, -4))
    axes.set_yticks(range(len(versions)), versions)
    axes.set_ylim(len(versions) - 0.5, -0.5)
    axes.set_xscale("log")
    axes.set_xlim(first / 2, 60 * max(steps for steps, _ in versions.values()))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.minorticks_off()
    axes.set_xlabel("environment steps per second (logarithmic axis)")


def training_curve(rewards: Sequence[float], running: Sequence[float], threshold: float) -> Figure:
    """Return a figure of a training: the reward of each episode, the running reward, and its threshold."""
    reached = running[-1] if running else 0.0
    verb = "passes" if reached > threshold else "has not passed"
    title = f"After {len(rewards):,} episodes the running reward is {reached:.0f}: it {verb} {threshold:g}"
    axes = new_axes(title, height=3.6)
    plt.close(axes.figure)  # the caller shows the figure, and updates it during the training
    episodes = range(1, len(rewards) + 1)
    axes.plot(episodes, rewards, ".", color=BLUE, alpha=0.4, markersize=3)
    axes.plot(episodes, running, **MODEL)
    axes.axhline(threshold, **{**LIMIT, "marker": ""})
    axes.set_xlim(0, 1.02 * max(len(rewards), 1))
    axes.set_ylim(0, 560)
    note(axes, f"threshold: {threshold:g}", (0, threshold), (6, 5))
    for height, text, colour in ((0.7, "line: the running reward", RED), (0.62, "dots: rewards of the episodes", BLUE)):
        axes.text(0.01, height, text, color=colour, transform=axes.transAxes)
    axes.set_xlabel("finished episodes")
    axes.set_ylabel("reward (steps)")
    return axes.figure


def angles(episodes: Mapping[str, Sequence[Sequence[float]]]) -> None:
    """Draw the angle of the pole over the steps of each episode of CartPole, and the limits at which an episode ends.

    An observation has the cart's position and velocity, and the pole's angle from upright, in radians, and its angular
    velocity.
    """
    figure, panels = subplots(1, len(episodes), figsize=(7.2, 3.2), sharey=True)
    lengths = [f"{len(observations)} steps {title}" for title, observations in episodes.items()]
    title = f"The pole stays up for {' and '.join(lengths)}"
    figure.suptitle(title, x=0.01, ha="left", fontsize="medium", fontweight="bold")
    looks = (MODEL, MODEL | {"color": BLUE, "linewidth": 1})
    for axes, look, (title, observations) in zip(panels, looks, episodes.items(), strict=True):
        degrees = [math.degrees(angle) for _, _, angle, _ in observations]
        axes.plot(range(1, len(degrees) + 1), degrees, **look)
        axes.set_title(title, fontsize="small", loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#E0E0E0")
        for limit in (-_LEAN, _LEAN):
            axes.axhline(limit, **LIMIT | {"marker": ""})
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
        axes.set_xlabel("step of the episode")
    note(panels[0], "outside these lines an episode ends", (0, _LEAN), shift=(4, 4))
    panels[0].set_ylim(-1.4 * _LEAN, 1.4 * _LEAN)
    panels[0].set_ylabel("angle from upright (degrees)")
