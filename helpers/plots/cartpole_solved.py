"""Figures of 22_cartpole_solved: steps per second, the progress of a training, and how far the pole leans."""

import math
from collections.abc import Mapping, Sequence

from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from helpers.plots.style import BLUE, LIMIT, MEASURED, MODEL, new_axes, note, subplots

_LEAN = 12  # degrees, either side of upright, at which an episode ends


def paces(versions: Mapping[str, tuple[float, float]]) -> None:
    """Draw the environment steps per second of each version, with its speed-up over the first version.

    `versions[title]` has steps per second and RPCs per step.
    """
    axes = new_axes("Fewer RPCs per step, more steps per second", height=1.1 + 0.5 * len(versions))
    first = next(iter(versions.values()))[0]
    for place, (steps, rpcs) in enumerate(versions.values()):
        axes.plot(steps, place, **MEASURED)
        calls = "1 RPC" if f"{rpcs:.2g}" == "1" else f"{rpcs:.2g} RPCs"
        note(axes, f"{steps / first:.3g} × version 1, {calls} per step", (steps, place), shift=(10, -4))
    axes.set_yticks(range(len(versions)), versions)
    axes.set_ylim(len(versions) - 0.5, -0.5)
    axes.set_xscale("log")
    axes.set_xlim(first / 2, 40 * max(steps for steps, _ in versions.values()))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.minorticks_off()
    axes.set_xlabel("environment steps per second (logarithmic axis)")


def training_curve(rewards: Sequence[float], running: Sequence[float], threshold: float) -> Figure:
    """Return a figure of a training: the reward of each episode, the running reward, and its threshold."""
    axes = new_axes("The running reward has to pass the threshold", height=3.6)
    plt.close(axes.figure)  # the caller shows the figure, and updates it during the training
    episodes = range(1, len(rewards) + 1)
    axes.plot(episodes, rewards, ".", color=BLUE, alpha=0.4, markersize=3, label="reward of an episode")
    axes.plot(episodes, running, label="running reward", **MODEL)
    axes.axhline(threshold, label=f"threshold: {threshold:g}", **{**LIMIT, "marker": ""})
    axes.set_xlabel("finished episodes")
    axes.set_ylabel("reward (steps)")
    axes.set_ylim(0, 520)
    axes.figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return axes.figure


def angles(episodes: Mapping[str, Sequence[Sequence[float]]]) -> None:
    """Draw the angle of the pole over the steps of each episode of CartPole, and the limits at which an episode ends.

    An observation has the cart's position and velocity, and the pole's angle from upright, in radians, and its angular
    velocity.
    """
    figure, panels = subplots(1, len(episodes), figsize=(7.2, 3.2), sharey=True)
    lengths = [f"{title} for {len(observations)} steps" for title, observations in episodes.items()]
    figure.suptitle(f"The pole stays up: {', '.join(lengths)}", x=0.01, ha="left", fontsize="medium", fontweight="bold")
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
        axes.set_xlabel("step of the episode")
    note(panels[0], "above this line an episode ends", (0, _LEAN), shift=(4, 4))
    panels[0].set_ylim(-1.4 * _LEAN, 1.4 * _LEAN)
    panels[0].set_ylabel("angle from upright (degrees)")
