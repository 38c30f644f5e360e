"""Figures: the ring's shows what each step has brought; all are stored small."""

import io
import subprocess
import sys

import PIL.Image
import pytest
from matplotlib import pyplot as plt
from matplotlib.patches import FancyArrowPatch, Rectangle

from helpers import plots
from helpers.plots.style import RED, new_axes, png


@pytest.fixture(autouse=True)
def without_windows():
    plt.switch_backend("agg")
    yield
    plt.close("all")


def test_what_the_notebooks_import_does_without_torch():
    """It takes a second or two, which a learner would wait for at the first cell: the ranks have torch already."""
    code = "import sys; from helpers import World, checks, plots; print('torch' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "False\n"


def ring(size):
    """What a ring all-reduce of 10**rank from every rank shows after each step."""
    frames = [[[10**rank] * size] for rank in range(size)]
    for step in range(2 * (size - 1)):
        before = [frame[-1] for frame in frames]
        for rank, frame in enumerate(frames):
            chunk, left = (rank - step - 1) % size, before[rank - 1]
            after = list(before[rank])
            after[chunk] = left[chunk] + (before[rank][chunk] if step < size - 1 else 0)
            frame.append(after)
    return frames


def framed(axes):
    """Return rank and chunk of the cells that are marked as just brought."""
    marks = [patch for patch in axes.patches if isinstance(patch, Rectangle) and patch.get_edgecolor()[:3] == rgb(RED)]
    return sorted((int(mark.get_y()), int(mark.get_x())) for mark in marks)


def rgb(colour):
    return tuple(int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_storyboard_of_a_ring(size):
    plots.ring_storyboard(ring(size))
    panels = [axes for axes in plt.gcf().axes if axes.get_visible()]
    assert len(panels) == 2 * size - 1
    assert framed(panels[0]) == []
    for step, panel in enumerate(panels[1:]):
        assert framed(panel) == sorted((rank, (rank - step - 1) % size) for rank in range(size))
    assert {text.get_text() for text in panels[-1].texts} == {"1" * size}


def test_one_step_of_a_ring():
    plots.ring_step(ring(4), 3)
    (axes,) = plt.gcf().axes
    assert axes.get_title() == "reduce-scatter, step 3"
    assert framed(axes) == [(0, 1), (1, 2), (2, 3), (3, 0)]


def test_steps_of_trainers_and_lines_of_their_updates():
    steps = {"trainer0": [(1.0, 1.1, "fresh"), (1.1, 1.3, "stale")], "trainer1": [(1.05, 1.2, "fails")]}
    plots.trainer_steps(steps)
    (axes,) = plt.gcf().axes
    assert [label.get_text() for label in axes.get_yticklabels()] == list(steps)
    assert [round(line.get_xdata()[0]) for line in axes.lines] == [100, 300]  # a step that fails makes no update


def test_a_box_for_each_forward_and_backward():
    stages = [[("F", 0, 1.0, 1.1), ("B", 0, 1.3, 1.5)], [("F", 0, 1.1, 1.2), ("B", 0, 1.2, 1.3)]]
    plots.pipeline_steps("a step", {"two stages": stages})
    (axes,) = plt.gcf().axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["stage 0", "stage 1"]
    boxes = [patch for patch in axes.patches if patch.get_zorder() == 2]
    assert [(round(box.get_x()), round(box.get_width())) for box in boxes] == [
        (0, 100),
        (300, 200),
        (100, 100),
        (200, 100),
    ]


def test_the_png_of_a_figure_has_few_colours():
    axes = new_axes("all colours")
    axes.imshow([[0, 1], [2, 3]], interpolation="bicubic")
    picture = PIL.Image.open(io.BytesIO(png(axes.figure)))
    assert len(picture.getcolors()) <= 128
    assert repr(axes.figure).startswith("<Figure size ")


@pytest.mark.parametrize("size", [2, 4, 8])
def test_a_ring_of_chunks_shows_what_every_rank_sends_in_every_step(size):
    steps = [[(rank - step) % size for rank in range(size)] for step in range(size - 1)]
    plots.ring_of_chunks(steps)
    panels = [axes for axes in plt.gcf().axes if axes.get_title()]
    assert len(panels) == size - 1
    for axes, sent in zip(panels, steps, strict=True):
        labels = [text.get_text() for text in axes.texts if text.get_text().startswith("chunk")]
        assert labels == [f"chunk {chunk}" for chunk in sent]


def test_what_crosses_from_host_to_host_has_another_colour():
    ring = [(0, 1), (1, 2), (2, 3), (3, 0)]
    plots.ways_over_cables([[0, 1], [2, 3]], {"a ring": (ring, "predicted 1.50")}, "tensors")
    (panel,) = plt.gcf().axes
    arrows = [patch for patch in panel.patches if isinstance(patch, FancyArrowPatch)]
    assert [arrow.get_edgecolor()[:3] == rgb(RED) for arrow in arrows] == [False, True, False, True]


def test_a_training_while_a_cable_is_out():
    scenes = {
        "out": {"steps": {0: [-0.1, 2.5], 1: [-0.1]}, "errors": {1: 4.0}, "out": 2.0},
        "killed": {"steps": {0: [-0.1], 1: []}, "errors": {0: 0.1}, "out": None},
    }
    plots.training_and_cable(scenes, killed="a rank is killed")
    for axes, scene in zip(plt.gcf().axes, scenes.values(), strict=True):
        errors = [list(line.get_xydata()[0]) for line in axes.lines if line.get_marker() == "X"]
        assert errors == [[seconds, rank] for rank, seconds in scene["errors"].items()]
        assert len(axes.patches) == (scene["out"] is not None)
    assert [line.get_marker() for line in plt.gcf().axes[1].lines].count("$†$") == 1


def test_a_rank_has_a_bar_for_each_time_that_it_is_there():
    plots.comings_and_goings([[0, 1], [0], [0], [0, 1]], [(1, 1, "dies"), (3, 1, "a new one")])
    (axes,) = plt.gcf().axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["rank 0", "rank 1"]
    assert [len(bars.get_paths()) for bars in axes.collections] == [1, 2]
