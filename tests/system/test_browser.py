"""The course in a real browser: JupyterLab as `make lab` starts it, in a headless Chromium.

`make lab` makes a copy of the notebooks beside them, so it runs in a copy of this checkout. No network is used.
"""

import base64
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import matplotlib.image
import nbformat
import numpy
import psutil
import pytest
from chromium import assert_gone
from lesson_files import at_night
from live import is_served

from helpers.kernels import KERNEL
from helpers.look.board import as_html
from helpers.look.sampling import Line
from helpers.look.where import RankState
from helpers.own_copy import bring_up_to_date

ROOT = Path(__file__).resolve().parents[2]
KERNEL_SHOWN = "torch.distributed, live"  # in JupyterLab
LESSON = ROOT / "notebooks/03_point_to_point.ipynb"
RING = ROOT / "notebooks/06_ring_all_reduce.ipynb"
# Deadlines against hanging: on a slow and busy machine a lesson takes minutes, and an answer of the page seconds.
SECONDS_TO_RUN_ALL = 300
pytestmark = pytest.mark.timeout(3 * SECONDS_TO_RUN_ALL)

SETTINGS = {
    # All cells are on the page, not only those in view.
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
}


# ---------------------------------------------------------------- the server, a notebook


class Lab(NamedTuple):
    """A JupyterLab that runs: its process, the folder that it serves, and the address that it has printed."""

    process: psutil.Process
    folder: Path
    address: str

    def page(self, name):
        """Return the address of a file of the folder."""
        return self.address.replace("notebooks/00_meet_the_ranks.ipynb", name)


@pytest.fixture(scope="module")
def server(browser, tmp_path_factory):
    """JupyterLab for all tests of this module that run in this process: `make lab` in a copy of the course."""
    place = tmp_path_factory.mktemp("lab")
    checkout = place / "course"
    shutil.copytree(ROOT, checkout, ignore=shutil.ignore_patterns(".*", "build", "__pycache__", "my-course"))
    log = place / "lab.log"
    with log.open("w") as output:
        make = subprocess.Popen(
            make_lab("--no-browser --port=0 --allow-root", checkout),
            cwd=checkout,
            env=environment(place),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        address = wait_for(
            lambda: make.poll() is not None or re.search(r"(http://127\.0\.0\.1\S+)\n", log.read_text()),
            seconds=120,
            otherwise="JupyterLab has printed no address",
        )
        assert make.poll() is None, f"make lab has ended:\n{log.read_text()}"
        wait_for(lambda: is_served(address[1]), seconds=60, otherwise="JupyterLab does not answer")
        (process,) = psutil.Process(make.pid).children()
        yield Lab(process, checkout / "my-course", address[1])
    finally:
        started = psutil.Process(make.pid).children(recursive=True) if make.poll() is None else []
        make.terminate()  # it ends the server, and the server ends its kernels
        assert_gone(started, seconds=30)
        make.wait(30)


@pytest.fixture
def lab(server):
    """JupyterLab as it is found for the first time: without kernels, answers and open pages of another test."""
    started = processes_of_kernels(server)
    for kernel in asked_of(server, "GET", "kernels"):
        asked_of(server, "DELETE", f"kernels/{kernel['id']}")
    assert_gone(started, seconds=30)
    shutil.rmtree(server.folder / "notebooks")
    for file in (*server.folder.glob("*.*"), *server.folder.glob(".workspaces/*")):
        if file.is_file():
            file.unlink()
    bring_up_to_date(ROOT / "notebooks", server.folder)
    return server


def processes_of_kernels(lab):
    """Return the kernels of a JupyterLab and all that they have started, but no language server, which goes on."""
    kernels = [child for child in lab.process.children() if "helpers.start_kernel" in child.cmdline()]
    return [*kernels, *[process for kernel in kernels for process in kernel.children(recursive=True)]]


def asked_of(lab, method, path):
    """Return what a JupyterLab answers to a request of its API, None for an empty answer."""
    address = urlsplit(lab.address)
    url = address._replace(path=f"/api/{path}", fragment="").geturl()
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=30) as answer:
        return json.loads(answer.read() or "null")


def make_lab(arguments, checkout):
    """Return the README's command, `make lab`, with these arguments for JupyterLab, which installs nothing.

    Where these tests run in the .venv that make has installed, the copy of the checkout gets a link to it. In any other
    environment make is told to run the same line with this Python.
    """
    command = ["make", "lab", "--old-file=.venv/.installed", f"ARGS={arguments}"]
    if Path(sys.prefix).resolve() == ROOT / ".venv" and (ROOT / ".venv/.installed").exists():
        (checkout / ".venv").symlink_to(ROOT / ".venv")
    else:
        command.append(f"RUN={shlex.quote(sys.executable)} -m")
    return command


def environment(folder):
    """Return an environment without this user's settings of Jupyter, nor those of a make that runs these tests."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("JUPYTER", "MAKE"))}
    config = folder / "config"
    (config / "labconfig").mkdir(parents=True)
    (config / "labconfig/default_setting_overrides.json").write_text(json.dumps(SETTINGS))
    return clean | {
        "JUPYTER_CONFIG_DIR": str(config),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "IPYTHONDIR": str(folder / "ipython"),
    }


class Notebook:
    """A notebook that is open in a page, and what a learner does there. Code cells are counted from 0."""

    def __init__(self, page):
        self.page = page
        # The workspace may have opened other notebooks again, whose panels are hidden.
        self.cells = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell")

    def numbers(self):
        """Return the number in front of each code cell: 0 for `[ ]` and `[*]`, None for a folded cell."""
        prompts = self.cells.evaluate_all(
            "cells => cells.map(cell => cell.querySelector('.jp-InputPlaceholder') ? null"
            " : cell.querySelector('.jp-InputPrompt').textContent)"
        )
        return [None if prompt is None else int("0" + re.sub(r"\D", "", prompt)) for prompt in prompts]

    def output(self, cell):
        return "\n".join(self.cells.nth(cell).locator(".jp-OutputArea-output").all_text_contents())

    def outputs(self, mime_type):
        return self.cells.locator(f'.jp-OutputArea-output[data-mime-type="{mime_type}"]')

    def red_outputs(self):
        """Return what JupyterLab shows on red: an error, after which no other cell runs, or what is said on stderr."""
        return self.outputs("application/vnd.jupyter.stderr")

    def notices(self):
        """Return what JupyterLab says or asks in a corner of the page. A question stays there until it is answered."""
        return self.page.locator(".Toastify__toast").all_text_contents()

    def start(self, cell):
        self.cells.nth(cell).locator(".cm-content").click()
        self.page.keyboard.press("Control+Enter")

    def run(self, cell):
        """Run a cell that has not been run before, and return its output."""
        assert not self.numbers()[cell]
        self.start(cell)
        wait_for(lambda: self.numbers()[cell], seconds=120, otherwise=f"cell {cell} has not ended")
        return self.output(cell)

    def run_all(self, seconds):
        """Choose Run All Cells from the menu, wait for it, and return every percentage seen in a progress bar."""
        before = max(number or 0 for number in self.numbers())
        self.page.get_by_role("menuitem", name="Run", exact=True).click()
        self.page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        percentages = set()

        def all_have_run():
            for text in self.outputs("application/vnd.jupyter.stdout").all_text_contents():
                percentages.update(int(percent) for percent in re.findall(r"(\d+)%\|", text))
            assert self.red_outputs().all_text_contents() == []
            return all(number is None or number > before for number in self.numbers())

        wait_for(all_have_run, seconds, otherwise="not every cell has run")
        return percentages

    def press(self, button):
        self.page.locator(".jp-NotebookPanel-toolbar").get_by_role("button", name=button, exact=True).click()

    def wait_until_idle(self):
        self.page.get_by_text(f"{KERNEL_SHOWN} | Idle", exact=True).wait_for(timeout=120_000)


@contextmanager
def opened(lab, browser, notebook, name, tmp_path):
    """Open a notebook by its address; if what is done with it fails, keep a picture of the page.

    `notebook` is what is opened, or None to open the learner's copy as it is.
    """
    if notebook is not None:
        nbformat.write(notebook, lab.folder / "notebooks" / name)
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    in_page = Notebook(page)
    try:
        page.goto(lab.page(f"notebooks/{name}"))
        in_page.wait_until_idle()
        yield in_page
        assert in_page.notices() == []
    except Exception as error:
        picture = tmp_path / "page.png"
        for culprit in (in_page.red_outputs().all() or in_page.cells.filter(has_text="[*]").all())[:1]:
            culprit.evaluate("element => element.scrollIntoView({block: 'center'})")
        page.screenshot(path=picture)
        raise AssertionError(f"{error}\nThe page as it was then: {picture}") from error
    finally:
        page.close()


def notebook_of(*cells):
    metadata = {"kernelspec": {"name": KERNEL, "display_name": KERNEL_SHOWN}}
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells], metadata=metadata)


def wait_for(condition, seconds, otherwise):
    """Return what `condition` returns, once that is true."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, f"after {seconds} s {otherwise}"
        time.sleep(0.05)
    return result


# ---------------------------------------------------------------- a lesson


def test_run_all_twice(browser, lab, tmp_path):
    lesson = nbformat.read(LESSON, as_version=4)
    plots = sum("image/png" in output.get("data", {}) for cell in lesson.cells for output in cell.get("outputs", []))
    assert plots > 0, "the lesson is stored without its outputs"
    clear_outputs(lesson)

    with opened(lab, browser, lesson, LESSON.name, tmp_path) as notebook:
        percentages = notebook.run_all(seconds=SECONDS_TO_RUN_ALL)
        # More steps than the bar of World(4) has, so the lesson's own bar was seen on its way.
        assert len(percentages - {0, 100}) > 3
        assert_plots_are_seen(notebook, plots)
        notebook.run_all(seconds=SECONDS_TO_RUN_ALL)  # in the same kernel
        assert_plots_are_seen(notebook, plots)


def clear_outputs(lesson):
    """Clear the stored outputs, so that what is on the page is of this run."""
    for cell in lesson.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None


def assert_plots_are_seen(notebook, number):
    images = notebook.outputs("image/png").locator("img").all()
    assert len(images) == number, "there are not as many plots on the page as are stored in the lesson"
    for image in images:
        assert image.is_visible() and image.evaluate("image => image.naturalWidth") > 0
        assert number_of_colours(image.get_attribute("src")) > 5, "a plot is blank"
        densities = image.evaluate("image => [image.naturalWidth / image.width, image.naturalHeight / image.height]")
        assert densities == pytest.approx([2, 2], rel=0.01), "a plot is not sharp on a screen of twice the density"


def number_of_colours(data_url):
    """Return how many colours that are no grey a PNG has; axes and their labels alone have none."""
    pixels = matplotlib.image.imread(io.BytesIO(base64.b64decode(data_url.partition(",")[2])))[..., :3]
    coloured = pixels[numpy.ptp(pixels, axis=-1) > 0.1]
    return len(numpy.unique(coloured, axis=0))


# ---------------------------------------------------------------- the learner's copy


@pytest.mark.nightly  # test_own_copy.py says the same of the files
def test_a_newer_course_replaces_what_was_run_and_keeps_what_was_written(browser, lab, tmp_path):
    """JupyterLab has saved both notebooks, with its own layout, metadata and outputs."""
    first, second = "00_meet_the_ranks.ipynb", LESSON.name
    for name, typed in [(first, ""), (second, "# my note\n")]:
        with opened(lab, browser, None, name, tmp_path) as notebook:
            # Each lesson opens with a figure, which is the only output that the copy keeps.
            assert notebook.cells.locator(".jp-OutputArea-output.jp-RenderedImage").count() == 1
            assert notebook.cells.locator(".jp-OutputArea-output").count() == 1 and not any(notebook.numbers())
            notebook.run(0)
            notebook.cells.first.locator(".cm-content").click()
            notebook.page.keyboard.press("Control+Home")
            notebook.page.keyboard.insert_text(typed)
            notebook.page.keyboard.press("Control+s")
            saved = lab.folder / "notebooks" / name
            wait_for(lambda path=saved: '"execution_count": 1' in path.read_text(), 60, otherwise="nothing is saved")
        for file in (lab.folder / ".workspaces").glob("*"):  # else the next page opens this notebook again, too
            file.unlink()

    originals = lab.folder.parent / "notebooks"
    for name in (first, second):
        newer = nbformat.read(originals / name, as_version=4)
        newer.cells[0].source += "\n\nNewer."
        nbformat.write(newer, originals / name)
    replaced, kept = bring_up_to_date(originals, lab.folder)
    assert replaced.startswith("Replaced") and replaced.endswith(f" notebooks/{first}.")
    assert kept.startswith(f"The course has newer versions of notebooks/{second}. Yours stay")
    assert "# my note" in (lab.folder / "notebooks" / second).read_text()


# ---------------------------------------------------------------- around a lesson


@pytest.mark.nightly
def test_a_long_line_of_output_breaks_between_words(browser, lab, tmp_path):
    with opened(lab, browser, notebook_of("print('a verdict in words ' * 20)"), "long.ipynb", tmp_path) as notebook:
        notebook.run(0)
        output = notebook.cells.first.locator(".jp-OutputArea-output pre")
        assert output.evaluate("pre => getComputedStyle(pre).wordBreak") == "normal"


def test_jupyterlab_shows_the_course_and_nothing_else(browser, lab, tmp_path):
    (lab.folder / "notes.md").write_text("# Notes\n\n- [ring](notebooks/06_ring_all_reduce.ipynb)\n")
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    try:
        page.goto(lab.page("notes.md"))
        page.locator(".jp-MarkdownViewer h1", has_text="Notes").wait_for(timeout=60_000)  # rendered, not its source
        tabs = page.locator(".jp-SideBar .lm-TabBar-tab")
        captions = tabs.evaluate_all("tabs => tabs.map(tab => tab.title)")
        assert any("File Browser" in caption for caption in captions)
        assert not any("IPython Parallel" in caption for caption in captions), "it starts another cluster"
        workspaces = lab.folder / ".workspaces"
        wait_for(lambda: [*workspaces.glob("default*")], 60, otherwise="the course has no workspace of its own")
        assert not (lab.folder.parent.parent / "config/lab/workspaces").exists()
    finally:
        page.close()


# ---------------------------------------------------------------- a slider


@pytest.mark.nightly
def test_a_slider_steps_through_the_ring(browser, lab, tmp_path):
    lesson = nbformat.read(RING, as_version=4)
    (slider_cell,) = [number for number, cell in enumerate(lesson.cells) if "plots.live(" in cell.source]
    lesson.cells = lesson.cells[: slider_cell + 1]
    clear_outputs(lesson)
    with opened(lab, browser, lesson, RING.name, tmp_path) as notebook:
        notebook.run_all(seconds=SECONDS_TO_RUN_ALL)
        last = notebook.cells.last
        figure, slider = last.locator('[data-mime-type="image/png"] img'), last.locator(".noUi-handle")
        figure.scroll_into_view_if_needed()
        seen = [figure.get_attribute("src")]
        for _ in range(2):
            slider.press("ArrowRight")
            wait_for(
                lambda: figure.get_attribute("src") not in seen, seconds=10, otherwise="the figure has not followed"
            )
            seen.append(figure.get_attribute("src"))
        slider.press("ArrowLeft")
        wait_for(lambda: figure.get_attribute("src") == seen[1], seconds=10, otherwise="the figure has not gone back")
        assert figure.count() == 1


# ---------------------------------------------------------------- a stuck cell

WORLD = """\
from helpers import World

world = World(2)
print(*world.pids)"""

# A thread of the kernel looks where rank 1 is, while the notebook waits for it.
WATCHED_WORLD = f"""\
{WORLD}

import threading, time
from pathlib import Path

def watch():
    while world.where()[1].call != "recv":
        time.sleep(0.05)
    Path("stuck").touch()

threading.Thread(target=watch, daemon=True).start()"""

GROUP = """\
%%px
from datetime import timedelta
import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(minutes=10))
rank = dist.get_rank()"""

STUCK = """\
%%px
if rank == 1:
    dist.recv(torch.zeros(1), src=0)"""

SUM = """\
%%px
total = torch.tensor([rank + 1])
dist.all_reduce(total)
print("the sum on rank", rank, "is", total.item())"""

RESTART = "world.restart()"


def run_stuck_cell(notebook, cell, lab):
    """Start the cell STUCK in a notebook with WATCHED_WORLD, and return when rank 1 is inside recv."""
    notebook.start(cell)
    wait_for((lab.folder / "notebooks/stuck").exists, seconds=60, otherwise="rank 1 has not got to recv")


def test_interrupt_a_stuck_cell(browser, lab, tmp_path):
    cells = [WATCHED_WORLD, GROUP, STUCK, SUM, RESTART, GROUP, SUM]
    with opened(lab, browser, notebook_of(*cells), "stuck.ipynb", tmp_path) as notebook:
        notebook.run(0)
        notebook.run(1)
        run_stuck_cell(notebook, 2, lab)

        pressed = time.monotonic()
        notebook.press("Interrupt the kernel")
        wait_for(lambda: notebook.numbers()[2], seconds=60, otherwise="the interrupted cell is still running")
        notebook.wait_until_idle()
        print(f"Interrupt: the prompt is back after {time.monotonic() - pressed:.1f} s")
        where = notebook.output(2)
        assert re.search(r"(?m)^ *0 +idle *$", where), where
        stuck = r"(?m)^ *1 +busy +\S+ s +recv +float32\[1\], src=0 +3 +dist\.recv\(torch\.zeros\(1\), src=0\)$"
        assert re.search(stuck, where), where

        refusal = notebook.run(3)  # it does not queue behind recv
        assert "rank 1" in refusal and "recv" in refusal and "the sum" not in refusal

        notebook.run(4)
        notebook.run(5)
        result = notebook.run(6)
        assert "the sum on rank 0 is 3\n" in result and "the sum on rank 1 is 3\n" in result


def test_restart_the_kernel_while_ranks_are_busy(browser, lab, tmp_path):
    cells = [WATCHED_WORLD, GROUP, STUCK, WORLD, GROUP, SUM]
    with opened(lab, browser, notebook_of(*cells), "busy.ipynb", tmp_path) as notebook:
        ranks = notebook.run(0).split()[-2:]
        notebook.run(1)
        run_stuck_cell(notebook, 2, lab)
        earlier = processes_of_kernels(lab)
        assert {int(pid) for pid in ranks} < {process.pid for process in earlier}

        notebook.press("Restart the kernel")
        notebook.page.locator(".jp-Dialog .jp-mod-accept").click()
        confirmed = time.monotonic()
        assert_gone(earlier, seconds=30)
        print(f"Restart: everything has ended after {time.monotonic() - confirmed:.1f} s")

        notebook.wait_until_idle()
        notebook.run(3)
        notebook.run(4)
        assert "the sum on rank 0 is 3\n" in notebook.run(5)


# ---------------------------------------------------------------- a fault

DIFFERS = """\
%%px
step = 3
loss = torch.ones(2)
dist.all_reduce(loss, dist.ReduceOp.MAX if rank == 1 else dist.ReduceOp.SUM)
print("through")"""

FAILS = """\
%%px
if rank == 1:
    loss[step]"""


def test_a_fault_is_seen_in_the_history_and_in_what_the_failed_rank_had(browser, lab, tmp_path):
    died = "world.post_mortem(1)"
    cells = [WORLD.replace("World(2)", "World(4)"), GROUP, DIFFERS, "world.history()", FAILS, died, f'{died}["step"]']
    with opened(lab, browser, notebook_of(*cells), "fault.ipynb", tmp_path) as notebook:
        notebook.run(0)
        notebook.run(1)
        assert notebook.run(2).endswith("[stdout:0-3] \nthrough\n")  # what all print stands there once
        history = notebook.run(3)
        assert "rank 1 passes a different operator" in history and "SUM" in history and "MAX" in history
        assert "IndexError" in notebook.run(4)
        frames = notebook.run(5)
        assert "Rank 1 raised IndexError: " in frames and "loss[step]" in frames
        assert notebook.run(6).strip() == "3"


# ---------------------------------------------------------------- Tab and Shift-Tab

HAVE = '''\
%%px
def scaled(values, by=2.0):
    """Return the values, multiplied."""
    return values * by'''


def test_tab_and_shift_tab_know_what_a_rank_has(browser, lab, tmp_path):
    cells = [WORLD, HAVE, "%%px\nscal"]
    with opened(lab, browser, notebook_of(*cells), "editor.ipynb", tmp_path) as notebook:
        notebook.run(0)
        notebook.run(1)
        text = notebook.cells.nth(2).locator(".cm-content")
        text.click()
        notebook.page.keyboard.press("Control+End")
        notebook.page.keyboard.press("Tab")
        offered = notebook.page.locator(".jp-Completer-item")
        wait_for(lambda: "scaled" in "".join(offered.all_inner_texts()), 60, otherwise="Tab has not offered it")
        notebook.page.keyboard.press("Enter")
        wait_for(lambda: text.inner_text().split() == ["%%px", "scaled"], 60, otherwise="it was not taken")
        notebook.page.keyboard.press("Shift+Tab")
        tooltip = notebook.page.locator(".jp-Tooltip")
        tooltip.wait_for(timeout=60_000)
        assert "scaled(values, by=2.0)" in tooltip.inner_text()
        assert "Return the values, multiplied." in tooltip.inner_text()
        notebook.page.keyboard.press("Escape")


# ---------------------------------------------------------------- the board

ADDS = """\
%%px
import os, time

going_on = torch.ones(2**18)
while going_on[0]:
    going_on.fill_(not os.path.exists("enough"))
    dist.all_reduce(going_on, dist.ReduceOp.MIN)
    time.sleep(0.1)"""

FEEDERS = """\
import threading

print([thread.name for thread in threading.enumerate()].count("board"), "thread")"""


class Panel:
    """The board in a page."""

    def __init__(self, page):
        self.table = page.locator(".jupyterlab-sidecar [role=table]")
        self.close = page.locator(".lm-TabBar-tab", has_text="Ranks").locator(".lm-TabBar-tabCloseIcon")

    def lines(self):
        """Return what stands in each line, by the names of the columns."""
        rows = self.table.locator("[role=row]")
        text = rows.evaluate_all("rows => rows.map(row => [...row.querySelectorAll('[role]')].map(c => c.innerText))")
        return [dict(zip(text[0], line, strict=True)) for line in text[1:]]


def test_the_board_moves_beside_the_notebook(browser, lab, tmp_path):
    cells = [WORLD.replace("World(2)", "World(4)"), GROUP, "world.board()", ADDS, STUCK, RESTART, FEEDERS, FEEDERS]
    with opened(lab, browser, notebook_of(*cells), "board.ipynb", tmp_path) as notebook:
        panel = Panel(notebook.page)
        for cell in (0, 1, 2):
            notebook.run(cell)
        panel.table.wait_for(timeout=60_000)

        rates = set()

        def two_rates_are_seen():
            rates.add(panel.lines()[0]["out"])
            return len([rate for rate in rates if "MB/s" in rate]) >= 2

        notebook.start(3)
        wait_for(two_rates_are_seen, seconds=60, otherwise="the board has not moved")
        (lab.folder / "notebooks/enough").touch()
        wait_for(lambda: notebook.numbers()[3], seconds=60, otherwise="the ranks go on")

        notebook.start(4)
        wait_for(lambda: panel.lines()[1]["call (line)"] == "recv (3)", 60, otherwise="rank 1 is not seen in recv")
        stuck = panel.lines()[1]
        assert stuck["state"] == "● busy"
        wait_for(lambda: panel.lines()[1]["for"] != stuck["for"], 30, otherwise="the seconds stand still")

        notebook.press("Interrupt the kernel")
        wait_for(lambda: notebook.numbers()[4], seconds=60, otherwise="the interrupted cell is still running")
        notebook.run(5)
        wait_for(lambda: "idle" in panel.lines()[1]["state"], 30, otherwise="the new rank is not seen idle")

        assert "1 thread" in notebook.run(6)
        panel.close.click(force=True)  # JupyterLab gives the click to the tab, which looks where it has been
        panel.table.wait_for(state="detached", timeout=30_000)
        assert "0 thread" in notebook.run(7)


SHOW_STATES = """\
from IPython.display import HTML
HTML({html!r})"""

# The contrast of each text with its ground, as WCAG 2 defines it. A canvas turns every colour into one of sRGB.
CONTRASTS = """\
table => {
    const pen = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    const grounds = [];
    for (let box = table; box; box = box.parentElement) grounds.unshift(getComputedStyle(box).backgroundColor);
    const painted = colours => {
        for (const colour of colours) { pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1); }
        const [red, green, blue] = [...pen.getImageData(0, 0, 1, 1).data].map(value => value / 255)
            .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
    };
    return [...table.querySelectorAll('span')].filter(span => !span.children.length && span.innerText).map(span => {
        const [dark, light] = [painted(grounds), painted([...grounds, getComputedStyle(span).color])].sort();
        return (light + 0.05) / (dark + 0.05);
    });
}"""


@pytest.mark.parametrize("theme", [at_night("JupyterLab Light"), "JupyterLab Dark"])
def test_every_state_of_the_board_is_readable(browser, lab, tmp_path, theme):
    states = ["idle", "busy", "serving", "silent", "cut off", "dead"]
    lines = [Line(RankState(rank, state), 2**20, 0.0, 1e6) for rank, state in enumerate(states)]
    cell = SHOW_STATES.format(html=as_html(lines))
    with opened(lab, browser, notebook_of(cell), "states.ipynb", tmp_path) as notebook:
        notebook.page.get_by_role("menuitem", name="Settings", exact=True).click()
        for item in ("Theme", theme):
            notebook.page.locator(".lm-Menu-itemLabel").get_by_text(item, exact=True).click()
        is_light = str(theme == "JupyterLab Light").lower()
        themed = notebook.page.locator(f"body[data-jp-theme-light={is_light}]")
        wait_for(themed.count, seconds=60, otherwise="the theme has not changed")
        notebook.run(0)
        board = notebook.page.locator(".jp-OutputArea [role=table]")
        for state in states:
            assert state in board.inner_text()
        contrasts = board.evaluate(CONTRASTS)
        colours = board.locator("span span").evaluate_all("spans => spans.map(span => getComputedStyle(span).color)")
        assert min(contrasts) >= 4.5 and len(set(colours)) == 5  # the dead and those cut off have the same


# ---------------------------------------------------------------- without a browser


@pytest.mark.parametrize("missing", ["chromium", "playwright"])
@pytest.mark.parametrize("ci", [False, True], ids=["own machine", "CI"])
def test_a_missing_browser_skips_but_fails_in_ci(tmp_path, missing, ci):
    environment = {key: value for key, value in os.environ.items() if key != "CI"} | ({"CI": "true"} if ci else {})
    program = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"
    if missing == "chromium":
        environment["PATH"] = str(tmp_path)  # which is empty
    else:
        program = "import sys; sys.modules['playwright'] = None; " + program
    tests = [f"{__file__}::test_interrupt_a_stuck_cell"]
    result = subprocess.run(
        [sys.executable, "-c", program, "-p", "no:cacheprovider", "-p", "pytest_timeout", *tests],
        cwd=ROOT,
        env=environment | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    how_to_get_one = {"chromium": "apt install chromium", "playwright": "pip install playwright"}[missing]
    assert how_to_get_one in result.stdout
    assert ("1 error" if ci else "1 skipped") in result.stdout.splitlines()[-1]
    assert result.returncode == (1 if ci else 0)
