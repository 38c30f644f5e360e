"""Tab and Shift-Tab in cells for the ranks, asked of a real kernel as an editor asks it."""

import time

import pytest
from live import Notebook, wait_until

START = """
from helpers import World
world = World(2)
only_in_the_notebook = 1
"""

# What each rank has. Whatever runs the learner's own code leaves a trace in `ran`.
VARIABLES = '''%%px
import torch
ran = []

def scaled(values, by=2.0):
    """Return the values, multiplied."""
    return values * by

class Careful:
    weight = 3
    @property
    def costly(self):
        ran.append("property")
        return "abc"
    def __repr__(self):
        ran.append("repr")
        return "Careful"
    def __len__(self):
        ran.append("len")
        return 1

careful = Careful()
table_of_losses = {"first loss": 1.0, "last loss": 0.5}
matrix_on_ranks = torch.zeros(2, 3)
model = torch.nn.Sequential(torch.nn.Linear(2, 3))
model.readout = torch.nn.Linear(3, 1)
'''


@pytest.fixture(scope="module")
def notebook():
    notebook = Notebook()
    try:
        assert "Error" not in notebook.run(START)
        assert notebook.run(VARIABLES) == ""
        assert notebook.run("%%px --targets 1\nonly_on_rank_1 = True") == ""
        yield notebook
    finally:
        notebook.close()


def soon(condition):
    """Return whether it comes true: on a busy machine an answer may take longer than the editor waits."""
    return wait_until(condition, seconds=20)


def completions(notebook, text):
    """Return what Tab offers at the end of this text, as the text would be then."""
    reply = notebook.client.complete(text, len(text), reply=True, timeout=30)["content"]
    assert reply["status"] == "ok"
    return [text[: reply["cursor_start"]] + match for match in reply["matches"]]


def documentation(notebook, text, offset=None):
    """Return what Shift-Tab shows at the end of this text, None when that is nothing."""
    place = len(text) if offset is None else offset
    reply = notebook.client.inspect(text, place, reply=True, timeout=30)["content"]
    return reply["data"]["text/plain"] if reply["found"] else None


def shown(notebook, text):
    """Return what Shift-Tab shows at the end of this text, once a rank has answered in time."""
    answers = []

    def is_answered():
        answers.append(documentation(notebook, text))
        return answers[-1] is not None

    assert soon(is_answered)
    return answers[-1]


@pytest.mark.parametrize(
    ("text", "completed"),
    [
        ("%%px\nmatrix_on", "%%px\nmatrix_on_ranks"),
        ("%px matrix_on", "%px matrix_on_ranks"),
        ("before = 1\n    %px print(matrix_on", "before = 1\n    %px print(matrix_on_ranks"),
        ("%%px\nx = 1\nfor step in range(3):\n    loss = matrix_on_ranks.num", "numel"),
        ("%%px\nmodel.read", "%%px\nmodel.readout"),
        ("%%px\nmodel.readout.wei", "weight"),
        ("%%px\ntorch.float3", "float32"),
        ("%%px\ntable_of_losses['fi", "first loss"),
        ("%%px\nscaled(matrix_on_ranks, b", "by="),
        ("%%px\ncareful.wei", "weight"),
        ("%%px --targets 1\nonly_on", "only_on_rank_1"),
        ("%%px\nmy_own_name = 1\nother = 2\nprint(my_own_n", "my_own_name"),
    ],
)
def test_tab_completes_what_a_rank_has(notebook, text, completed):
    def is_offered():
        return any(one.rstrip("'\"]").endswith(completed) for one in completions(notebook, text))

    assert soon(is_offered), completions(notebook, text)


def test_what_no_rank_has_is_completed_by_what_the_notebook_has(notebook):
    assert completions(notebook, "%%px\nonly_in") == ["%%px\nonly_in_the_notebook"]


def test_other_cells_are_completed_as_ever(notebook):
    assert completions(notebook, "only_in_the") == ["only_in_the_notebook"]
    assert completions(notebook, "matrix_on") == []
    assert "%%px" in completions(notebook, "%%p")


def test_shift_tab_shows_signature_and_docstring(notebook):
    text = shown(notebook, "%%px\nscaled")
    assert "Signature: scaled(values, by=2.0)" in text
    assert "Return the values, multiplied." in text
    assert shown(notebook, "%%px\nscaled(matrix_on_ranks, ") == text  # inside its call
    assert "in_features: int" in shown(notebook, "%px torch.nn.Linear")
    assert "shape (2, 3), torch.float32" in shown(notebook, "%%px\nmatrix_on_ranks")
    assert documentation(notebook, "%%px\nnowhere_at_all") is None
    assert documentation(notebook, "scaled") is None  # in a cell of the notebook, which has no such name
    assert "int" in documentation(notebook, "only_in_the_notebook")


def test_nothing_of_the_learner_runs(notebook):
    for name in ["careful", "careful.costly", "Careful"]:
        assert shown(notebook, f"%%px\n{name}")
        completions(notebook, f"%%px\n{name}.")
    assert notebook.run("print(world.view['ran'])") == "[[], []]\n"


def test_questions_do_not_pass_through_the_queue_of_the_cells(notebook):
    before = notebook.run("print(len(world.view.client.history))")
    for _ in range(20):
        completions(notebook, "%%px\nmatrix_on")
    assert notebook.run("print(len(world.view.client.history))") == before
    assert notebook.run("print(world.view['ran'])") == "[[], []]\n"


def test_no_busy_rank_is_asked(notebook, tmp_path):
    go = tmp_path / "go"
    wait = f"while not __import__('os').path.exists({str(go)!r}): __import__('time').sleep(0.01)"
    notebook.run(f"%%px --noblock --targets 0\n{wait}")
    # The first that is idle is rank 1.
    assert soon(lambda: completions(notebook, "%%px\nonly_on") == ["%%px\nonly_on_rank_1"])
    notebook.run(f"%%px --noblock --targets 1\n{wait}")
    assert completions(notebook, "%%px\nmatrix_on") == []
    go.touch()
    assert soon(lambda: completions(notebook, "%%px\nmatrix_on") == ["%%px\nmatrix_on_ranks"])


def test_a_rank_that_does_not_answer_costs_little(notebook):
    stop = "import os, signal\nfor pid in world.pids: os.kill(pid, signal.{})"
    notebook.run(stop.format("SIGSTOP"))
    try:
        started = time.monotonic()
        for _ in range(30):  # more than wait at its door
            assert completions(notebook, "%%px\nmatrix_on") == []
        assert time.monotonic() - started < 30
        assert completions(notebook, "%%px\nonly_in") == ["%%px\nonly_in_the_notebook"]  # the plain completion
    finally:
        notebook.run(stop.format("SIGCONT"))
    assert soon(lambda: completions(notebook, "%%px\nmatrix_on") == ["%%px\nmatrix_on_ranks"])


CONNECTED = "print(len(get_ipython().Completer.custom_matchers), 'do_inspect' in vars(get_ipython().kernel))"


def test_after_a_restart_the_new_ranks_are_asked_and_after_a_stop_none(notebook):
    notebook.run("world.restart()")
    assert notebook.run(CONNECTED) == "1 True\n"
    assert completions(notebook, "%%px\nmatrix_on") == []
    notebook.run("%px another_variable = 1")
    assert soon(lambda: completions(notebook, "%%px\nanother_v") == ["%%px\nanother_variable"])
    notebook.run("world.stop()")
    assert notebook.run(CONNECTED) == "0 False\n"  # nothing of the editor is left, which would keep the world
    assert completions(notebook, "%%px\nanother_v") == []
    assert documentation(notebook, "%%px\nanother_variable") is None
