"""After an error on a rank: its frames, and any variable of theirs, also while other ranks hang."""

import os
import signal
import textwrap

import ipyparallel as ipp
import pytest
import torch
from live import INIT, wait_until

from helpers import WorldError

SETUP = (
    INIT.format(timeout=20)
    + """
import threading

class Net(torch.nn.Linear):
    pass

def step(factor):
    lock = threading.Lock()
    net = Net(2, 3)
    loss = (factor[0] * net(torch.ones(5, 2))).sum()
    part = torch.zeros(10_000)[2:50]
    return torch.ones(2) @ torch.ones(3)
"""
)


def run(world, cell):
    """Run a cell on all ranks as `%%px` does, and return what each has raised, None for no error."""
    cell = textwrap.dedent(cell).lstrip("\n")
    world._cells.remember(cell)
    raised = world.view.execute(cell, block=False).get(20, return_exceptions=True)
    return [error.ename if isinstance(error, ipp.RemoteError) else None for error in raised]


def refusal(ask):
    with pytest.raises(WorldError) as refused:
        ask()
    return str(refused.value)


def test_the_frames_of_an_error_and_their_variables(world):
    cell = """
    def outer(steps):
        scale = [steps, 2]
        if rank == 1:
            step(scale)

    number = 7
    outer(number)
    """
    assert run(world, cell) == [None, "RuntimeError", None, None]
    died = world.post_mortem(1)
    assert died.error.startswith("RuntimeError: ")
    assert [(frame.function, frame.file) for frame in died.frames] == [("<module>", ""), ("outer", ""), ("step", "")]
    assert [frame.line for frame in died.frames[:2]] == ["outer(number)", "step(scale)"]
    assert [frame.line_number for frame in died.frames[:2]] == [8, 5]  # with `%%px` in the first line

    # The frame that `died[...]` speaks of is the innermost one; the others have theirs.
    assert torch.is_tensor(died["loss"]) and died["loss"].shape == () and not died["loss"].requires_grad
    assert died["factor"] == [7, 2]
    assert died["rank"] == 1  # a global, as in the lines of the function
    assert torch.equal(died["part"], torch.zeros(48)) and died["part"].untyped_storage().nbytes() == 48 * 4
    assert died.frames[1]["steps"] == 7 and died.frames[0]["number"] == 7
    assert died.frames[0].variables == {"number": "7"}
    assert died.frames[1].variables == {"steps": "7", "scale": "[7, 2]"}
    assert died.frames[2].variables["part"] == "float32[48]"
    assert list(died.frames[2].variables) == ["factor", "lock", "net", "loss", "part"]

    # What cannot be sent comes as what it prints.
    assert died["lock"].startswith("<unlocked _thread.lock object")
    assert died["net"] == "Net(in_features=2, out_features=3, bias=True)"  # of a class that only the ranks have
    assert died["step"].startswith("<function step at")
    assert refusal(lambda: died["los"]) == (
        "There is no variable 'los' in step. Its variables: factor, lock, net, loss, part."
    )

    shown = repr(died).split("\n\n")
    assert shown[0].startswith("Rank 1 raised RuntimeError: ")
    assert shown[1].splitlines()[2].split() == ["1", "outer", "5", "step(scale)"]
    assert shown[2].splitlines()[0].split() == ["frame", "variable", "value"]
    assert "    1  scale     [7, 2]" in shown[2].splitlines()


def test_an_error_inside_a_library_is_shown_with_the_frame_of_the_learner(world):
    cell = """
    box = torch.zeros(2)
    dist.send(box, dst=rank)
    """
    assert set(run(world, cell)) == {"ValueError"}
    died = world.post_mortem(2)
    assert died.frames[0].line == "dist.send(box, dst=rank)" and died.frames[0].line_number == 3
    inner = died.frames[-1]
    assert inner.file == "distributed_c10d.py" and inner.line.startswith("raise ValueError(")
    assert torch.equal(died["box"], torch.zeros(2)) and died["rank"] == 2
    assert "tensor" in [frame for frame in died.frames if frame.function == "send"][-1].variables
    assert " 0  box       tensor([0., 0.])" in repr(died) and " send " in repr(died)


def test_the_next_error_takes_the_place_of_the_last(world):
    run(world, "first = 1\nfirst / 0\n")
    first = world.post_mortem(0)
    assert first["first"] == 1
    run(world, "first = 2\n")  # no error
    assert first["first"] == 2
    run(world, "second = 'two'\n[][second]\n")
    assert refusal(lambda: first["first"]) == (
        "Rank 0 has had another error since then: call world.post_mortem(0) again."
    )
    second = world.post_mortem(0)
    assert second.error.startswith("TypeError: ") and second["second"] == "two"
    assert refusal(lambda: second["third"]) == "There is no variable 'third' in <module>. Its variables: second."
    assert world.post_mortem(0)["second"] == "two"  # asking for what is not there is no error of the rank


def test_functions_that_the_notebook_sends_and_lines_that_are_no_program(world):
    run(world, "def halve(number):\n    return number / 0\n")
    with pytest.raises(ipp.RemoteError):
        world.view.client[3].apply_sync(ipp.Reference("halve"), 8)
    died = world.post_mortem(3)
    assert [(frame.function, frame.line) for frame in died.frames] == [("halve", "return number / 0")]
    assert died["number"] == 8
    assert set(run(world, "a = = b\n")) == {"SyntaxError"}
    died = world.post_mortem(3)
    assert repr(died) == "Rank 3 raised SyntaxError: invalid syntax (line 2 of the cell)\n    a = = b\n        ^"
    assert died.frames == []
    assert refusal(lambda: died["a"]) == "The error has not come through a line of a cell. See the frames in `.frames`."


def test_a_rank_that_cannot_tell_says_why(broken_world):
    world = broken_world
    world.restart()
    world.view.execute(SETUP)
    assert refusal(lambda: world.post_mortem(0)) == (
        "Rank 0 has had no error since it was started, except those that its cells have caught."
    )
    assert refusal(lambda: world.post_mortem(4)).startswith("There is no rank 4")
    cell = "if rank == 0:\n    raise ValueError(rank)\nif rank < 3:\n    dist.recv(torch.zeros(1), src=3)\n"
    world._cells.remember(cell)
    answer = world.view.execute(cell, block=False)
    assert wait_until(lambda: [s.call for s in world.where()] == ["", "recv", "recv", ""], 10), world.where()
    assert wait_until(lambda: answer.metadata[0]["error"], 10)
    assert refusal(lambda: world.post_mortem(1)) == (
        "Rank 1 is busy in recv, on line 5: dist.recv(torch.zeros(1), src=3). Its last error can be looked at when it "
        "is idle; world.where() shows what it does now."
    )
    assert world.post_mortem(0).error == "ValueError: 0"  # while the others hang
    os.kill(world.pids[2], signal.SIGKILL)
    assert wait_until(lambda: world.where()[2].state == "dead", 5)
    assert refusal(lambda: world.post_mortem(2)) == (
        "Rank 2 has died (SIGKILL), and its variables with it. Call world.restart() for working ranks."
    )
    os.kill(world.pids[3], signal.SIGSTOP)
    assert wait_until(lambda: world.where()[3].state == "silent", 5)
    assert refusal(lambda: world.post_mortem(3)).startswith("Rank 3 does not answer.")


def test_where_an_interrupt_has_met_a_rank(world):
    cell = "def count():\n    counted = 0\n    while True:\n        counted += 1\n\ncount()\n"
    answer = world.start(cell)
    in_the_loop = {"while True:", "counted += 1"}
    assert wait_until(lambda: {state.line for state in world.where()} <= in_the_loop, 20), world.where()
    world.interrupt()
    assert {error.ename for error in answer.get(20, return_exceptions=True)} == {"KeyboardInterrupt"}
    died = world.post_mortem(1)
    assert died.error == "KeyboardInterrupt" and died.frames[-1].function == "count" and died["counted"] > 0
