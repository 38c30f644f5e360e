"""Everyday slips in a real notebook: each gets a sentence that says what to do."""

import pytest
from live import INIT, Notebook

START = "from helpers import World, checks\nworld = World(3)"
NO_WORLD = (
    "WorldError: There is no world yet, so `%%px` has no ranks to run on. "
    "Run the cell with `world = World(...)` first, then this cell."
)
NOT_FIRST = "WorldError: `%%px` is not in the first line of this cell. Move it up there, and run the cell again."
STOPPED = "WorldError: This world has been stopped. Make a new one: world = World(2)."
SHARE = "def my_share(cards, rank, size):\n    return {}"


@pytest.fixture(scope="module")
def notebook():
    notebook = Notebook()
    try:
        assert "Error" not in notebook.run(START)
        yield notebook
    finally:
        notebook.close()


def frames(shown):
    """Return the places in a traceback, as lines of a cell and names of files."""
    return [line.split(",")[0].split("/")[-1] for line in shown.splitlines() if line.startswith(("Cell", "File"))]


def test_px_before_a_world_says_to_start_one():
    notebook = Notebook()
    try:
        for cell in ["%%px\nprint(1)", "%px print(1)", "%%px --targets 0\nprint(1)"]:
            assert notebook.run(cell) == NO_WORLD
        assert "Error" not in notebook.run(START)
        assert notebook.run("%px print('run')") == "[stdout:0-2] \nrun\n"
    finally:
        notebook.close()


@pytest.mark.parametrize("above", ["# where is rank 0?\n", "\n# where is\n\n    # rank 0?\n", "before = 1\n"])
def test_px_below_other_lines_is_refused_with_a_sentence(notebook, above):
    assert notebook.run(f"{above}%%px\nprint('run')") == NOT_FIRST


def test_px_below_a_comment_is_refused_even_when_the_notebook_could_not_parse_the_cell(notebook):
    assert notebook.run("# a comment\n%%px --targets 0\nprint(") == NOT_FIRST


def test_cells_with_comments_and_empty_lines_run_as_before(notebook):
    assert notebook.run("\n\n%%px\n# a comment\nprint('run')") == "[stdout:0-2] \nrun\n"
    assert notebook.run("# a comment\ntext = '''\n%%px\n'''\nprint(len(text))") == "6\n"
    assert notebook.run("# a comment\n%px print('run')") == "[stdout:0-2] \nrun\n"


@pytest.mark.parametrize("targets", ["3:", "2:-1"])
def test_targets_that_name_no_rank(notebook, targets):
    said = f"WorldError: `--targets {targets}` names no rank: the ranks of this world are 0 to 2."
    assert notebook.run(f"%%px --targets {targets}\nprint('run')") == said


def test_a_name_that_only_ranks_have_is_explained(notebook):
    notebook.run("%px here = 1")
    notebook.run("%%px --targets 1\nhere_on_rank_1 = 1")
    shown = notebook.run("print(here)")
    assert shown.endswith(
        "NameError: name 'here' is not defined\n"
        "`here` is defined on ranks 0-2, not in the notebook. Begin the cell with `%%px`."
    )
    assert frames(shown) == ["Cell In[" + shown.split("Cell In[")[1].split(",")[0]]
    shown = notebook.run("def inside():\n    return here_on_rank_1\n\ninside()")
    assert "\n`here_on_rank_1` is defined on rank 1, not in the notebook. Begin" in shown


def test_other_errors_of_the_notebook_are_shown_as_before(notebook):
    assert notebook.run("nowhere_at_all").endswith(
        "----> 1 nowhere_at_all\n\nNameError: name 'nowhere_at_all' is not defined"
    )
    assert notebook.run("raise NameError('by hand')").endswith("\n\nNameError: by hand")
    assert notebook.run("raise RuntimeError('by hand')").endswith("\n\nRuntimeError: by hand")


def test_equal_tracebacks_are_shown_once(notebook):
    notebook.run("%px --targets 0\n1")
    shown = notebook.run("%%px\ndef divide():\n    return 1 / 0\n\ndivide()")
    assert shown.startswith("Ranks 0-2 raised:\n") and shown.count("raised:") == 1
    assert shown.count("ZeroDivisionError: division by zero") == 1
    assert len(frames(shown)) == 2


def test_ranks_that_have_run_other_cells_before_have_equal_tracebacks(notebook):
    notebook.run("%%px --targets 1\ncounted = 1")
    assert notebook.run("%%px\n1 / 0").startswith("Ranks 0-2 raised:\n")
    assert notebook.run("world.view.execute('1 / 0')").startswith("Ranks 0-2 raised:\n")


def test_different_tracebacks_are_shown_with_their_ranks(notebook):
    shown = notebook.run("%%px\nimport os\nif os.environ['RANK'] == '1':\n    1 / 0\nabsent")
    assert [line for line in shown.splitlines() if line.endswith("raised:")] == ["Ranks 0,2 raised:", "Rank 1 raised:"]
    assert shown.count("NameError: name 'absent'") == 1 and shown.count("ZeroDivisionError: ") == 1


def test_no_frame_of_the_helpers_is_shown(notebook):
    notebook.run("%%px\n" + INIT.format(timeout=2))
    shown = notebook.run("%%px --targets 0\ndist.recv(torch.zeros(1), src=1)")
    assert shown.startswith("Rank 0 raised:\n") and "Timed out waiting 2000ms" in shown
    assert frames(shown)[1:] == [
        "c10d_logger.py:83",
        "distributed_c10d.py:" + shown.split("distributed_c10d.py:")[1].split(",")[0],
    ]
    assert "tap.py" not in shown
    assert "tap.py" not in notebook.run("world.post_mortem(0)")


def test_an_answer_without_px_is_said_to_be_in_the_notebook(notebook):
    cell = SHARE.format("cards[rank]")
    assert notebook.run(cell) == ""
    what_to_do = "Put `%%px` in the first line of the cell that defines it, run that cell, then this check."
    new = f"Not yet. You defined `my_share` in the notebook, but the ranks have no `my_share`. {what_to_do}"
    assert notebook.run("checks.meet_the_ranks.my_share(world)") == new
    assert notebook.run("%%px\n" + SHARE.format("...")) == ""
    assert "in the notebook" not in notebook.run("checks.meet_the_ranks.my_share(world)")
    assert notebook.run(cell) == ""
    old = f"Not yet. You defined `my_share` in the notebook, but the ranks still have the old `my_share`. {what_to_do}"
    assert notebook.run("checks.meet_the_ranks.my_share(world)") == old
    # The notebook still has its function, and the ranks have another one that is newer.
    assert notebook.run("%%px\n" + SHARE.format("cards[0]")) == ""
    assert "in the notebook" not in notebook.run("checks.meet_the_ranks.my_share(world)")


def test_a_function_that_the_notebook_sends_to_the_ranks_is_judged(notebook):
    assert notebook.run(SHARE.format("'sent'")) == ""
    assert "in the notebook" in notebook.run("checks.meet_the_ranks.my_share(world)")
    assert notebook.run("world.view['my_share'] = my_share") == ""
    assert "in the notebook" not in notebook.run("checks.meet_the_ranks.my_share(world)")


def test_after_a_stop_everything_says_so():
    notebook = Notebook()
    try:
        assert "Error" not in notebook.run(START.replace("3", "2"))
        notebook.run("view = world.view\nfinished = view.apply_async(str)\nfinished.get()")
        notebook.run("%%px --noblock -o failed\n1 / 0")
        assert notebook.run("failed.get()").startswith("Ranks 0-1 raised:\n")
        notebook.run("%%px --noblock -o pending\nimport time\nwhile True: time.sleep(0.1)")
        assert notebook.run("world.stop()") == ""
        for cell in [
            "%%px\nprint(1)",
            "%px print(1)",
            "%pxresult",
            "world.where()",
            "world.history()",
            "world.post_mortem(0)",
            "world.board()",
            "world.restart()",
            "world.interrupt()",
            "world.new_store()",
            "world.view['x']",
            "view['x']",
            "view['x'] = 1",
            "view.execute('x = 1')",
            "view.apply_async(print)",
            "pending.get()",
            "checks.meet_the_ranks.my_share(world)",
        ]:
            assert notebook.run(cell) == STOPPED, cell
        assert notebook.run("print(finished.get())") == "['', '']\n"
        assert notebook.run("failed.get()").startswith("Ranks 0-1 raised:\n")
        assert notebook.run("nowhere").endswith("\n\nNameError: name 'nowhere' is not defined")
        assert "Error" not in notebook.run("world = World(2)")
        assert notebook.run("%px print('run')") == "[stdout:0-1] \nrun\n"
    finally:
        notebook.close()
