"""The board: what it says of ranks that are idle, busy, stuck and dead, and how it is shown and goes away."""

import os
import queue
import re
from contextlib import suppress
from pathlib import Path

import pytest
from live import Notebook, wait_until

from helpers.look.board import as_html, as_text
from helpers.look.sampling import Line, Sampler
from helpers.look.where import RankState

SETUP = """
import os, time
from datetime import timedelta
import torch
import torch.distributed as dist
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
rank = dist.get_rank()
"""


def look(world, sampler=None):
    return (sampler or Sampler()).look(world._ranks, world._cells)


# ---------------------------------------------------------------- what it says


def test_an_idle_world(world):
    lines = look(world)
    assert [line.state.rank for line in lines] == [0, 1, 2, 3]
    assert {line.state.state for line in lines} == {"idle"}
    assert all(2**20 < line.memory < 2**33 for line in lines)
    assert {(line.received, line.sent) for line in lines} == {(None, None)}  # there is no earlier look to compare with


def test_bytes_per_second_are_those_of_the_connections(world):
    """Over the two looks together the rates say how many bytes there were: those of the payload, and little more."""
    elements = 2**20
    payload = 4 * elements
    sampler = Sampler()
    look(world, sampler)
    before = sampler._carried[0][0]
    code = f"dist.send(torch.ones({elements}), dst=1) if rank == 0 else dist.recv(torch.empty({elements}), src=0)"
    world.view.client[[0, 1]].execute(code, block=True, silent=True)
    lines = look(world, sampler)
    seconds = sampler._carried[0][0] - before
    assert payload < lines[0].sent * seconds < 1.1 * payload
    assert payload < lines[1].received * seconds < 1.1 * payload
    assert lines[1].sent * seconds < 0.1 * payload
    for idle in lines[2:]:
        assert idle.sent * seconds < 0.1 * payload and idle.received * seconds < 0.1 * payload


def test_ranks_that_are_stuck_and_dead(broken_world):
    world = broken_world
    cell = "if rank == 1:\n    dist.recv(torch.zeros(1), src=0)\nelif rank == 2:\n    os.kill(os.getpid(), 9)\n"
    world._cells.remember(cell)
    sent = world.view.client[[0, 1]].apply_async(_run, cell)
    world._cells.sent([0, 1], sent.msg_ids)
    world.view.client[2].apply_async(_run, cell)
    assert wait_until(lambda: [line.state.state for line in look(world)] == ["idle", "busy", "dead", "idle"], 10)
    assert wait_until(lambda: look(world)[1].state.call == "recv", 10)
    idle, stuck, dead, _ = look(world)
    assert (stuck.state.line_number, stuck.state.line) == (3, "dist.recv(torch.zeros(1), src=0)")
    assert stuck.state.seconds > 0 and stuck.memory > 0
    assert dead.memory is None and dead.sent is None and dead.state.line == "SIGKILL"


def _run(cell):
    from IPython import get_ipython

    get_ipython().run_cell(cell, silent=True)


def test_looking_leaves_nothing_behind(world):
    """Neither in the queue of the cells nor in the world's folder, however often."""
    sampler = Sampler()
    look(world, sampler)

    def left():
        files = {path.name: path.stat().st_size for path in Path(world.folder).glob("rank-*") if path.is_file()}
        return len(world.view.client.history), files, len(os.listdir("/dev/fd"))

    before = left()
    for _ in range(20):
        look(world, sampler)
    assert left() == before


LINES = [
    Line(RankState(0, "idle"), 90 * 2**20, 0.0, 12_345.0),
    Line(RankState(1, "busy", 2.34, "recv", 4, "dist.recv(<x>, src=0)"), 100 * 2**20, 2.5e6, 3.1e9),
    Line(RankState(2, "dead", line="SIGKILL"), None, None, None),
]


def test_as_text():
    assert as_text(LINES).splitlines() == [
        "rank  state  for    call  line  memory   in        out",
        "   0  idle                      90 MiB   0 B/s     12.3 kB/s",
        "   1  busy   2.3 s  recv     4  100 MiB  2.5 MB/s  3.1 GB/s",
        "   2  dead",
    ]


def test_as_html():
    html = as_html(LINES)
    assert html.count("role='row'") == 4
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))
    assert "1 ● busy 2.3 s 100 MiB recv (4) 2.5 MB/s 3.1 GB/s" in text
    assert "2 † dead" in text
    assert "title='dist.recv(&lt;x&gt;, src=0)'" in html


# ---------------------------------------------------------------- how it is shown, in a kernel

SECONDS = re.compile(r">([\d.]+) s<")

START = """
from helpers import World
world = World(2)
import threading
def feeders():
    return sum(thread.name == "board" for thread in threading.enumerate())
"""


@pytest.fixture(params=["JupyterLab", "elsewhere"])
def notebook(request, monkeypatch):
    if request.param == "JupyterLab":
        monkeypatch.setenv("JPY_SESSION_NAME", "notebook.ipynb")
    else:
        monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    monkeypatch.delenv("VSCODE_PID", raising=False)
    notebook = Notebook()
    notebook.in_jupyterlab = request.param == "JupyterLab"
    try:
        assert "Error" not in notebook.run(START)
        yield notebook
    finally:
        notebook.close()


class Frontend:
    """What a page that shows the notebook would know: the widgets that are there, and the tables that came."""

    def __init__(self, notebook):
        self._client = notebook.client
        self.widgets = {}
        self.tables = []

    def run(self, cell):
        """Run a cell, and return what it prints."""
        return self.end_of(self.start(cell))

    def start(self, cell):
        """Start a cell, and return its request."""
        return self._client.execute(cell)

    def end_of(self, request):
        """Wait for the end of a cell, and return what it prints meanwhile."""
        printed = ""
        while True:
            message = self._client.get_iopub_msg(timeout=60)
            self._take(message)
            content, is_of_cell = message["content"], message["parent_header"].get("msg_id") == request
            if message["msg_type"] == "stream":
                printed += content["text"]
            assert message["msg_type"] != "error", content
            if is_of_cell and content.get("execution_state") == "idle":
                return printed

    def wait_for(self, condition):
        """Wait until a condition holds, for at most 20 s; return whether it does."""

        def holds():
            with suppress(queue.Empty):
                while True:
                    self._take(self._client.get_iopub_msg(timeout=0.05))
            return condition()

        return wait_until(holds, 20)

    def has(self, *names):
        """Return whether these are the widgets that are there."""
        models = [state["_model_name"] for state in self.widgets.values()]
        return sorted(name for name in models if name not in ("LayoutModel", "HTMLStyleModel")) == sorted(names)

    def show(self, number):
        """Say, as a page does, in how many places the table is shown now."""
        (comm,) = [comm for comm, state in self.widgets.items() if state["_model_name"] == "HTMLModel"]
        data = {"method": "update", "state": {"_view_count": number}, "buffer_paths": []}
        self._client.shell_channel.send(self._client.session.msg("comm_msg", {"comm_id": comm, "data": data}))

    def _take(self, message):
        content, kind = message["content"], message["msg_type"]
        if kind == "comm_open":
            self.widgets[content["comm_id"]] = content["data"]["state"]
        elif kind == "comm_close":
            self.widgets.pop(content["comm_id"])
        elif kind == "comm_msg" and "value" in content["data"].get("state", {}):
            self.tables.append(content["data"]["state"]["value"])


def seconds_in(tables):
    """Return how long the rank that is busy has been so, in each table that shows one."""
    return [float(found[1]) for found in map(SECONDS.search, tables) if found]


def test_it_moves_while_a_cell_runs_and_goes_with_the_world(notebook, tmp_path):
    def wait_for(file):
        return f"import os, time\nwhile not os.path.exists({str(file)!r}):\n    time.sleep(0.01)"

    page = Frontend(notebook)
    panel = ["SidecarModel"] * notebook.in_jupyterlab
    assert page.run("world.board()\nworld.board()\nprint(feeders())") == "1\n"  # two calls, one board
    assert page.has("HTMLModel", *panel)

    # While the notebook waits for a rank.
    page.tables.clear()
    cell = page.start(f"%%px --targets 1\n{wait_for(tmp_path / 'seen')}")
    assert page.wait_for(lambda: len(seconds_in(page.tables)) >= 3)
    (tmp_path / "seen").touch()
    page.end_of(cell)
    seconds = seconds_in(page.tables)
    assert sorted(set(seconds)) == seconds
    assert page.wait_for(lambda: page.tables and "busy" not in page.tables[-1])

    assert page.run("world.restart()\nprint(feeders())").endswith("1\n")
    page.tables.clear()
    cell = page.start(f"%%px --targets 0\n{wait_for(tmp_path / 'seen again')}")
    assert page.wait_for(lambda: any("sleep" in table for table in page.tables))
    (tmp_path / "seen again").touch()
    page.end_of(cell)

    assert page.run("world.stop()\nprint(feeders())") == "0\n"
    assert page.wait_for(lambda: page.has())


def test_it_ends_when_it_is_closed(notebook):
    page = Frontend(notebook)
    page.run("world.board()")
    page.show(1)
    page.show(0)
    assert page.wait_for(lambda: page.has())
    assert page.run("print(feeders())") == "0\n"
    assert page.run("world.board()\nprint(feeders())") == "1\n"  # a new one
    assert page.has("HTMLModel", *["SidecarModel"] * notebook.in_jupyterlab)


def test_another_world_has_a_board_of_its_own(notebook):
    page = Frontend(notebook)
    page.run("world.board()")
    assert page.run("world = World(1)\nworld.board()\nprint(feeders())").endswith("1\n")
    assert page.has("HTMLModel", *["SidecarModel"] * notebook.in_jupyterlab)
    assert page.wait_for(lambda: page.tables and page.tables[-1].count("role='row'") == 2)


def test_in_a_program_it_is_printed(world, capsys):
    world.board()
    assert capsys.readouterr().out.splitlines()[0].split() == [*"rank state for call line memory in out".split()]
