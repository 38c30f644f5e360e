"""Figures: the ring's shows what each step has brought; all are stored small."""

import io
import re
import subprocess
import sys
from pathlib import Path

import PIL.Image
import pytest
from IPython.core.interactiveshell import InteractiveShell
from lesson_files import NOTEBOOKS, SOLUTIONS, at_night
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb
from matplotlib.patches import Circle, FancyArrowPatch, Rectangle

from helpers import plots
from helpers.measure.timeline import Interval
from helpers.plots.style import RED, TINTS, new_axes, png


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


@pytest.mark.parametrize("size", [2, 3, at_night(8)])
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
    assert axes.get_title() == "reduce-scatter, step 2"
    assert framed(axes) == [(0, 1), (1, 2), (2, 3), (3, 0)]


def test_steps_of_trainers_and_lines_of_their_updates():
    log = [
        ("trainer0", "reads", 1.0),
        ("trainer1", "reads", 1.05),
        ("trainer0", "updates", 1.1),
        ("trainer1", "fails", 1.2),
        ("trainer1", "reads", 1.25),
        ("trainer1", "updates", 1.3),
    ]
    plots.trainer_steps(log)
    (axes,) = plt.gcf().axes
    assert axes.get_title(loc="left") == "0 of 3 steps were stale, and 1 failed"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["trainer0", "trainer1"]
    assert [round(line.get_xdata()[0]) for line in axes.lines] == [100, 300]  # a step that fails makes no update


def test_the_part_of_a_long_log_with_a_failed_step_is_drawn():
    log = [(f"trainer{n % 2}", event, n + time) for n in range(40) for event, time in (("reads", 0), ("updates", 0.5))]
    log[-1] = ("trainer1", "fails", 40)
    plots.trainer_steps(log)
    (axes,) = plt.gcf().axes
    assert axes.get_title(loc="left") == "0 of 16 steps were stale, and 1 failed"


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


def test_the_critical_path_of_a_step_is_outlined():
    stages = [
        [("F", 0, 0.0, 0.1), ("F", 1, 0.1, 0.2), ("B", 0, 0.7, 0.9), ("B", 1, 0.9, 1.1)],
        [("F", 0, 0.1, 0.3), ("F", 1, 0.3, 0.4), ("B", 0, 0.4, 0.6), ("B", 1, 0.6, 0.8)],
    ]
    path = plots.critical_path(stages)
    assert [event[:2] for event in path] == [("F", 0), ("F", 0), ("F", 1), ("B", 0), ("B", 0), ("B", 1)]
    assert [event[2] for event in path] == [0.0, 0.1, 0.3, 0.4, 0.7, 0.9]
    plots.pipeline_steps("a step", {"two stages": stages}, outline=True)
    (axes,) = plt.gcf().axes
    outlined = [patch.get_x() for patch in axes.patches if patch.get_zorder() == 4]
    assert sorted(map(round, outlined)) == [0, 100, 300, 400, 700, 900]


def test_communication_that_no_computation_hides_is_labelled_with_its_milliseconds():
    step = [Interval("forward", 1.0, 1.1), Interval("backward", 1.1, 1.3), Interval("Optimizer.step", 1.4, 1.5)]
    step += [Interval("gloo:all_reduce", 1.2, 1.32), Interval("gloo:all_reduce", 1.25, 1.37)]
    plots.exposed_steps("steps", {"overlap": step, "alone": step[:3]})
    (axes,) = plt.gcf().axes
    assert [text.get_text() for text in axes.texts] == ["overlap", "70 ms exposed", "alone"]


def test_the_png_of_a_figure_has_few_colours_and_keeps_those_of_thin_lines():
    axes = new_axes("all colours")
    axes.imshow([[0, 1], [2, 3]], interpolation="bicubic")
    axes.axvline(1, color=RED, linewidth=0.5)
    picture = PIL.Image.open(io.BytesIO(png(axes.figure)[0]))
    assert len(picture.getcolors()) <= 64
    found = [colour for _, colour in picture.convert("RGB").getcolors()]
    for drawn in (RED, "#E0E0E0"):  # the line, and the grid behind it
        wanted = [255 * part for part in to_rgb(drawn)]
        assert min(sum(abs(a - b) for a, b in zip(colour, wanted, strict=True)) for colour in found) < 30
    assert repr(axes.figure).startswith("<Figure size ")


def test_every_figure_is_stored_in_this_way():
    """Notebooks draw through `plots`, and its modules make their figures through `style`."""
    modules = [path for path in Path(plots.__file__).parent.glob("*.py") if path.name != "style.py"]
    for path in [*modules, *NOTEBOOKS, *SOLUTIONS]:
        assert not re.search(r"plt\.(subplots?|figure|plot)\(", path.read_text()), path.name


def test_a_stored_figure_has_twice_the_density_of_the_page():
    """The figure has the size on the page that it would have without that density."""
    shell = InteractiveShell.instance()
    try:
        figure = new_axes("sharp", width=3, height=2).figure
        data, metadata = shell.display_formatter.format(figure)
    finally:
        InteractiveShell.clear_instance()
    with io.BytesIO() as drawn:
        figure.savefig(drawn, format="png", bbox_inches="tight")
        width, height = PIL.Image.open(drawn).size
    shown = metadata["image/png"]
    assert shown["width"] == pytest.approx(width, abs=1) and shown["height"] == pytest.approx(height, abs=1)
    picture = PIL.Image.open(io.BytesIO(data["image/png"]))
    assert [side // 2 for side in picture.size] == [shown["width"], shown["height"]]


@pytest.mark.parametrize("size", [2, 4, 8])
def test_a_ring_of_chunks_shows_what_every_rank_sends_and_the_ranks_in_its_sum(size):
    steps = [[(rank - step) % size for rank in range(size)] for step in range(size - 1)]
    plots.ring_of_chunks(steps)
    panels = [axes for axes in plt.gcf().axes if axes.get_title()]
    assert len(panels) == size - 1
    for step, (axes, sent) in enumerate(zip(panels, steps, strict=True)):
        labels = [text.get_text() for text in axes.texts if text.get_text().startswith("chunk")]
        expected = []
        for chunk in sent:
            ranks = [str((chunk + number) % size) for number in range(step + 1)]
            summed = "+".join(ranks) if step < 4 else f"{ranks[0]}+…+{ranks[-1]}"
            expected.append(f"chunk {chunk}:\n{summed}")
        assert labels == expected


def test_what_crosses_from_host_to_host_has_another_colour():
    ring = [(0, 1), (1, 2), (2, 3), (3, 0)]
    plots.ranks_on_a_circle([[0, 1], [2, 3]], {"a ring": dict.fromkeys(ring, 1.5)}, "a finding")
    (panel,) = plt.gcf().axes
    assert "1.50 tensors leave a host" in [text.get_text() for text in panel.texts]
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


def test_a_process_has_a_bar_for_each_step_and_another_look_where_it_waits():
    history = [(1, 10.0, ["0.1", "1.1"]), (2, 10.1, ["0.1", "1.1"]), (3, 10.8, ["0.1"])]
    plots.comings_and_goings([(history, 10.1, "killed"), (history[2:], 10.9, "a new one")])
    axes, second = plt.gcf().axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["process 0.1", "process 1.1"]
    assert [label.get_text() for label in second.get_yticklabels()] == ["process 0.1"]
    assert [bars.get_hatch() for bars in axes.collections] == [None, "///", None]


def test_the_progress_of_each_run_begins_with_its_failure():
    rows = [(step, 5.0 + step / 10, 2) for step in range(1, 101)]
    again = [(step, 20.0 + step / 10, 1) for step in range(76, 151)]
    plots.progress_after_failure({name: (15.0, [*rows, *again], 100) for name in ("a", "b", "c", "d")})
    (axes,) = plt.gcf().axes
    seconds, steps = axes.lines[0].get_data()
    assert min(steps) == -24 and max(steps) == 30 and list(seconds) == sorted(seconds)


def test_two_layers_have_a_part_for_each_rank():
    plots.two_cut_layers(3)
    (axes,) = plt.gcf().axes
    sizes = [(round(patch.get_width(), 6), round(patch.get_height(), 6)) for patch in axes.patches]
    x, y = sizes[0], sizes[-1]
    by_columns, hidden, by_rows = sizes[1:4], sizes[4:7], sizes[7:10]
    assert x == y
    assert len({*by_columns}) == len({*hidden}) == len({*by_rows}) == 1
    assert by_columns[0] == by_rows[0][::-1]
    assert [text.get_text() for text in axes.texts].count("0") == 3  # the three matrices that are cut


def test_each_expert_has_the_tokens_that_chose_it_in_the_colour_of_their_rank():
    plots.tokens_to_experts([[1, 1], [0, 1]])
    (axes,) = plt.gcf().axes
    tokens = [patch for patch in axes.patches if round(patch.get_width(), 6) == 0.3]
    tokens.sort(key=lambda token: (round(token.get_y()), token.get_x()))
    colours = [TINTS.index(next(tint for tint in TINTS if to_rgb(tint) == box.get_facecolor()[:3])) for box in tokens]
    assert colours == [0, 0, 1, 0, 0, 1, 1, 0, 0, 1, 1, 1]  # home, expert 0, back; home, expert 1, back


def test_the_rows_of_an_expert_add_up():
    plots.expert_loads([[20, 4], [10, 6]], 9)
    (axes,) = plt.gcf().axes
    assert axes.get_title(loc="left").startswith("Expert 0 computes 30 rows")
    assert [(bar.get_x(), bar.get_width()) for bar in axes.patches] == [(0, 20), (20, 10), (0, 4), (4, 6)]
    assert {" 30", " 10", " capacity 18"} <= {text.get_text() for text in axes.texts}


def test_the_shares_of_the_experts_are_stacked():
    without = {"shares": [[1, 0], [1, 0]], "dropped": [4, 4], "loss": [2, 1]}
    balanced = {"shares": [[1, 0], [0.5, 0.5]], "dropped": [4, 0], "loss": [2, 0.5]}
    plots.loads_over_training({"without": without, "with": balanced})
    without, balanced, *thin = plt.gcf().axes
    assert [list(axes.lines[0].get_ydata()) for axes in thin] == [[4, 4], [4, 0], [2, 1], [2, 0.5]]
    assert [text.get_text() for text in without.texts] == ["expert 0"]
    assert [text.get_text() for text in balanced.texts] == ["expert 0", "expert 1"]


def test_each_owner_was_asked_for_its_rows_in_the_colour_of_the_rank_that_needs_them():
    plots.rows_and_owners([[0, 3], [1, 0]], rows=4)
    (axes,) = plt.gcf().axes
    boxes = [patch for patch in axes.patches if round(patch.get_width(), 6) == 0.34]
    asked = [text for text in axes.texts if text.get_text().isdigit() and 4.2 < text.get_position()[0] < 9.6]
    asked.sort(key=lambda text: (text.get_position()[1], text.get_position()[0]))
    assert [text.get_text() for text in asked] == ["0", "1", "0", "3"]
    colours = [
        TINTS.index(next(tint for tint in TINTS if to_rgb(tint) == box.get_facecolor()[:3]))
        for text in asked
        for box in boxes
        if box.get_x() < text.get_position()[0] < box.get_x() + box.get_width()
        and box.get_y() < text.get_position()[1] < box.get_y() + box.get_height()
    ]
    assert colours == [0, 1, 1, 0]


def test_the_loads_of_owners_have_a_bar_for_each_kind_of_request():
    loads = [{("blocks", "once"): 3, ("blocks", "every"): 9}, {("blocks", "once"): 1, ("blocks", "every"): 2}]
    plots.loads_of_owners([of_rank | {("modulo", kind): 2 for kind in ("once", "every")} for of_rank in loads])
    blocks, modulo = plt.gcf().axes
    assert [bar.get_height() for bar in blocks.patches] == [9, 2, 3, 1]
    assert [bar.get_height() for bar in modulo.patches] == [2, 2, 2, 2]


def test_the_busiest_ranks_have_a_line_for_each_placement():
    plots.busiest_ranks({2: (5000, 4000, 2000), 8: (40_000, 8000, 16_000)})
    (axes,) = plt.gcf().axes
    assert [list(line.get_ydata()) for line in axes.lines] == [[5000, 40_000], [4000, 8000], [2000, 16_000]]
    assert [text.get_text() for text in axes.texts] == ["owner, blocks", "owner, modulo", "server"]


def test_the_blocks_of_a_ring_move_to_the_right_while_the_queries_stay():
    plots.ring_of_blocks(3)
    labels = [[text.get_text() for text in axes.texts if text.get_text()] for axes in plt.gcf().axes]
    assert labels[0][1:] == ["rank 0\nQ 0", "K, V 0", "rank 1\nQ 1", "K, V 1", "rank 2\nQ 2", "K, V 2"]
    assert labels[1][1:] == ["rank 0\nQ 0", "K, V 2", "rank 1\nQ 1", "K, V 0", "rank 2\nQ 2", "K, V 1"]


def test_causal_chunks_have_the_number_of_their_rank():
    plots.causal_chunks({"in order": [0, 0, 1, 1], "in zigzag": [0, 1, 1, 0]})
    in_order, in_zigzag = plt.gcf().axes
    assert in_order.get_title() == "in order: 3 to 7 pieces a rank"
    assert in_zigzag.get_title() == "in zigzag: 5 pieces a rank"
    assert [text.get_text() for text in in_order.texts] == list("0001111111")
    assert [text.get_text() for text in in_zigzag.texts] == list("0111110000")


def test_the_slowest_rank_of_each_step_of_a_ring():
    plots.ring_work({"in order": [[4, 0], [4, 4]], "in zigzag": [[3, 2], [3, 2]]})
    in_order, in_zigzag = plt.gcf().axes
    assert in_order.get_title() == "in order:\n8 pieces one after another"
    assert in_zigzag.get_title() == "in zigzag:\n5 pieces one after another"
    assert [text.get_text() for text in in_order.texts] == ["4", "", "4", "4", "4", "4"]
    assert [text.get_text() for text in in_zigzag.texts] == ["3", "2", "3", "2", "3", "2"]


def test_flight_records_have_a_letter_for_each_kind_of_call_and_a_frame_where_they_part():
    plots.flight_records([["sum", "sum"], ["sum", "log", "sum"]])
    (axes,) = plt.gcf().axes
    assert [text.get_text() for text in axes.texts] == ["A", "A", "A", "B", "A"]
    assert axes.get_xlabel().endswith("A: sum\nB: log")
    frame = axes.patches[-1]
    assert (frame.get_x(), frame.get_width(), frame.get_fill()) == (1.5, 1, False)


def test_ranks_of_a_grid_are_joined_along_its_axes():
    coordinates = [{"tensor": rank % 2, "pipeline": rank // 2} for rank in range(4)]
    in_a_ring = [{"data": rank} for rank in range(4)]
    plots.grids_of_ranks([[0, 1], [2, 3]], {"a grid": (coordinates, ""), "a ring": (in_a_ring, "")})
    grid, ring = plt.gcf().axes
    lines = [[patch for patch in panel.patches if isinstance(patch, FancyArrowPatch)] for panel in (grid, ring)]
    assert [len(found) for found in lines] == [4, 4]
    assert [line.get_edgecolor()[:3] for line in lines[0]].count(rgb(RED)) == 2  # of the pipeline


def test_two_ranks_at_one_place_of_a_grid_are_refused():
    with pytest.raises(ValueError, match="Several ranks have the same coordinates"):
        plots.grids_of_ranks([[0], [1]], {"a ring": ([{"data": 0}, {"data": 0}], "")})


def test_the_parts_of_a_step_stand_behind_each_other():
    plots.seconds_on_cables("steps", [("one", {"tensor": 1.0, "data": 0.5}, 2.0), ("two", {"tensor": 0.0}, None)])
    (axes,) = plt.gcf().axes
    assert [(bar.get_x(), bar.get_width()) for bar in axes.patches] == [(0, 1.0), (1.0, 0.5)]
    assert [bar.get_fill() for bar in axes.patches] == [True, False]  # computing can hide the bytes of data
    assert [list(line.get_xdata()) for line in axes.lines] == [[2.0]]


def test_layouts_on_paper_have_a_column_of_memory_and_pale_rows_that_do_not_fit():
    rows = [("one", {"tensor": 1.0}, 40, True), ("two", {"tensor": 0.5}, 90, False)]
    plots.layouts_on_paper("steps", rows, ("one", 2.0), 80)
    seconds, memory = plt.gcf().axes
    assert [bar.get_width() for bar in memory.patches] == [40, 90]
    assert [bar.get_alpha() for bar in seconds.patches] == [bar.get_alpha() for bar in memory.patches] == [1, 0.5]
    assert list(seconds.lines[0].get_xdata()) == [2.0] and list(memory.lines[0].get_xdata()) == [80, 80]


def test_a_sketch_of_three_splits_has_eight_ranks():
    plots.three_splits()
    (axes,) = plt.gcf().axes
    ranks = [text.get_text() for text in axes.texts if text.get_text().startswith("rank")]
    assert ranks == [f"rank {rank}" for rank in range(8)]
    assert len(axes.lines) == 4 + 4  # along tensor and pipeline
    assert len([patch for patch in axes.patches if isinstance(patch, FancyArrowPatch)]) == 4  # along data


def test_a_flat_vector_and_its_shards():
    plots.flat_vector({"weight": 42, "bias": 7}, 4)
    (axes,) = plt.gcf().axes
    texts = {text.get_text() for text in axes.texts}
    assert texts == {"weight: 42", "bias: 7", "padding: 3", *(f"rank {rank}: 13" for rank in range(4))}


def test_what_a_rank_holds_adds_up():
    moments = [("forward 0", (100, 0, 200, 0)), ("backward 0", (100, 100, 200, 0)), ("copy 0", (100, 100, 200, 50))]
    plots.step_ledgers({"whole": moments, "sharded": [("forward 0", (25, 0, 50, 0)), ("update", (25, 25, 50, 0))]}, 100)
    panels = [axes for axes in plt.gcf().axes if axes.get_title(loc="left")]
    assert [axes.get_title(loc="left") for axes in panels] == ["whole: peak 4.50 B", "sharded: peak 1.00 B"]
    tops = [round(bar.get_y() + bar.get_height(), 2) for bar in panels[0].patches]
    # Of the state, of the parameters above it, of the gradients, and of the flat copy on top.
    assert tops == [2, 2, 2, 3, 3, 3, 3, 4, 4, 3, 4, 4.5]


def test_a_flat_copy_belongs_to_the_phase_in_which_it_is_made():
    early = ["backward 1", "copy 1", "backward 0", "copy 0", "update"]
    late = ["backward 1", "backward 0", "copy 0", "copy 1", "update"]
    for names, phases in ((early, ["backward", "update"]), (late, ["backward", "update"])):
        plots.step_ledgers({"one": [(name, (1, 1, 1, 1)) for name in names]}, 1)
        axes = plt.gcf().axes[0]
        assert [text.get_text() for text in axes.texts] == phases
        (border,) = [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == "-"]
        assert border == (3.5 if names is early else 1.5)


def test_a_sharded_rank_has_its_own_chunks_and_one_whole_layer():
    plots.shards_of_ranks()
    (axes,) = plt.gcf().axes
    white = [patch for patch in axes.patches if patch.get_facecolor()[:3] == (1, 1, 1)]
    assert len(axes.patches) == 2 * 4 * 4 * 4
    assert len(white) == 3 * 4 * 3  # three layers, of which each rank lacks three chunks


def test_peaks_are_curves_with_a_dot_for_this_world():
    peaks = {"data parallel": [4.0, 4.0], "ZeRO-1": [3.0, 2.5], "ZeRO-2": [2.5, 2.0], "ZeRO-3": [2.0, 1.0]}
    plots.peaks_over_ranks([2, 4], peaks, {"n": 4} | {name: values[1] for name, values in peaks.items()})
    (axes,) = plt.gcf().axes
    assert [list(line.get_ydata()) for line in axes.lines[::2]] == list(peaks.values())
    assert [tuple(line.get_xydata()[0]) for line in axes.lines[1::2]] == [(4, values[1]) for values in peaks.values()]


def test_a_layer_is_a_bar_with_its_number():
    step = [
        Interval("wait", 1.0, 1.1),
        Interval("gloo:all_gather", 1.0, 1.2),
        Interval("forward 0", 1.1, 1.3),
        Interval("backward", 1.3, 1.6),
        Interval("backward 0", 1.3, 1.5),
        Interval("gloo:send", 1.5, 1.6),
    ]
    plots.fetched_layers("layers", {"one": step})
    (axes,) = plt.gcf().axes
    bars = [(bar.get_y(), round(bar.get_x()), round(bar.get_width())) for bar in axes.patches]
    assert bars == [(0, 0, 100), (1, 0, 200), (0, 100, 200), (0, 300, 200), (2, 500, 100)]
    assert [text.get_text() for text in axes.texts] == ["one", "0", "0", "600 ms"]


def test_outside_f_and_g_only_sequence_parallel_splits():
    plots.tokens_of_block(4)
    (axes,) = plt.gcf().axes
    boxes = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert len(boxes) == (3 + 2 * 4) + 5 * 4  # three grey boxes in the first row
    narrow = [box for box in boxes if box.get_width() < 1]
    assert len(narrow) == 2 * 2 * 4  # columns and rows, in both rows of the figure
    texts = [text.get_text() for text in axes.texts]
    assert texts.count("backward: all-reduce") == 1 and texts.count("backward: ?") == 2


def test_each_symptom_has_its_tool():
    plots.tool_for_symptom()
    (axes,) = plt.gcf().axes
    boxes = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert len(boxes) == 2 * 5
    texts = [text.get_text() for text in axes.texts]
    assert texts.count("yes") == 5 and texts.count("no") == 4


def test_a_matrix_is_on_one_rank_or_in_slices_on_all():
    plots.tensors_and_slices()
    (axes,) = plt.gcf().axes
    labels = [text.get_text() for text in axes.texts if text.get_text().startswith("rank")]
    assert labels == [f"rank {rank}" for rank in (0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2)]


def test_a_bar_for_each_rank():
    plots.elements_by_rank({"DDP": [20, 20], "fully_shard": [11, 9]})
    (axes,) = plt.gcf().axes
    assert [bar.get_width() for bar in axes.patches] == [20, 20, 11, 9]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["rank 0", "rank 1"] * 2


def test_an_arrow_leads_from_each_rank_that_waits():
    plots.who_waits({"one hang": {1: [0]}, "another": {0: [1, 2], 1: [0]}}, 3)
    expected = [("one hang", 1, {1}, {0}), ("another", 3, {0, 1}, {2})]
    for axes, (title, arrows, waiting, awaited) in zip(plt.gcf().axes, expected, strict=True):
        assert axes.get_title() == title
        assert sum(isinstance(patch, FancyArrowPatch) for patch in axes.patches) == arrows
        circles = [patch for patch in axes.patches if isinstance(patch, Circle)]
        assert {rank for rank, circle in enumerate(circles) if circle.get_linestyle() == "--"} == waiting
        blue = {rank for rank, circle in enumerate(circles) if circle.get_facecolor()[:3] == to_rgb(TINTS[0])}
        assert blue == awaited


def test_the_boxes_of_a_rank_stand_side_by_side_and_one_rank_is_hatched():
    floats, doubles = [("1", 4)] * 2, [("1", 8)] * 2
    plots.passed_by_rank({"same": [floats, floats], "another dtype": [floats, doubles]}, 1)
    _, axes = plt.gcf().axes
    boxes = [(box.get_x(), box.get_width(), box.get_hatch()) for box in axes.patches if isinstance(box, Rectangle)]
    assert boxes == [(0, 4, None), (4, 4, None), (0, 8, "///"), (8, 8, "///")]
