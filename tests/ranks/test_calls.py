"""The RPCs of a rank are recorded, each once, whichever function of torch makes them."""

import pytest

SETUP = """
import os, threading
import torch
import torch.distributed.rpc as rpc
from torch.distributed.rpc import remote, rpc_async, rpc_sync
from helpers import tap
from helpers.measure import calls

class Box:
    def __init__(self, content):
        self.content = content

    def open(self, lid=None):
        return self.content

    @rpc.functions.async_execution
    def open_later(self):
        future = torch.futures.Future()
        future.set_result(self.content)
        return future

@torch.jit.script
def double(x: torch.Tensor):
    return 2 * x

def identity(*arguments):
    return arguments[0] if arguments else None

def fail():
    raise ValueError("on purpose")

let_go = threading.Event()

def hold():
    let_go.wait()

rank = int(os.environ["RANK"])
options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=20, _transports=["uv"], _channels=["basic"])
rpc.init_rpc(f"worker{rank}", rank=rank, world_size=int(os.environ["WORLD_SIZE"]), rpc_backend_options=options)
subscribers = dict(tap._heard)
x = torch.ones(3)
"""


@pytest.fixture
def recorded(world):
    """A function that runs a block on rank 0 and returns the calls that it has made."""

    def run(block):
        lines = "\n    ".join(block.splitlines())
        world.view.client[0].execute(f"with calls.recorded() as made:\n    {lines}", block=True)
        world.view.execute("assert tap._heard == subscribers")
        made = world.view.client[0].pull("made", block=True)
        assert {call.caller for call in made} <= {"worker0"}
        for before, call in zip([None, *made], made, strict=False):
            assert call.end is None or call.begin <= call.end
            assert before is None or before.begin <= call.begin
        return made

    return run


def seen(made):
    return [(call.kind, call.callee, call.function, call.sent, call.received) for call in made]


@pytest.mark.parametrize("prefix", ["", "rpc."])
@pytest.mark.parametrize("function", ["identity", "double", "torch.neg"])
def test_each_kind_of_function_in_each_way(recorded, prefix, function):
    made = recorded(
        f"{prefix}rpc_sync('worker1', {function}, (x,))\n"
        f"{prefix}rpc_async(2, {function}, (x,)).wait()\n"
        f"rref = {prefix}remote('worker3', {function}, (x,))\n"
        "rref.to_here()"
    )
    name = function.removeprefix("torch.")
    assert seen(made) == [
        ("sync", "worker1", name, 12, 12),
        ("async", "worker2", name, 12, 12),
        ("remote", "worker3", name, 12, 0),
    ]
    assert all(call.end is not None for call in made)


def test_methods_on_an_rref(recorded):
    recorded("box = rpc.remote('worker1', Box, (x,))\nbox.rpc_sync().open()")
    made = recorded(
        "box.rpc_sync().open(lid=x)\nbox.rpc_async().open().wait()\nbox.remote().open().to_here()\n"
        "box.rpc_sync().open_later()"
    )
    assert seen(made) == [
        ("sync", "worker1", "open", 12, 12),
        ("async", "worker1", "open", 0, 12),
        ("remote", "worker1", "open", 0, 0),
        ("sync", "worker1", "open_later", 0, 12),
    ]


def test_the_first_call_on_an_rref_asks_for_its_type(recorded):
    made = recorded("box = rpc.remote('worker1', Box, (x,))\nbox.rpc_sync().open()")
    assert [call.function for call in made] == ["Box", "_rref_typeof_on_owner", "open"]


def test_tensors_inside_of_containers(recorded):
    made = recorded("rpc.rpc_sync('worker1', identity, ([x, {'y': (x, 'z')}], x))")
    assert seen(made) == [("sync", "worker1", "identity", 36, 24)]


def test_a_call_that_fails_has_ended(recorded):
    made = recorded("try:\n    rpc.rpc_sync('worker1', fail)\nexcept ValueError:\n    pass")
    assert seen(made) == [("sync", "worker1", "fail", 0, 0)]
    assert made[0].end is not None


def test_a_call_that_cannot_be_made_is_none(recorded):
    made = recorded("try:\n    rpc.rpc_sync('worker1', lambda: None)\nexcept Exception as error:\n    print(error)")
    assert made == []


def test_a_call_that_still_runs_has_no_end_yet(recorded, world):
    made = recorded("pending = rpc.rpc_async('worker1', hold)")
    assert [(call.function, call.end) for call in made] == [("hold", None)]
    world.view.client[1].execute("let_go.set()", block=True)
    world.view.client[0].execute("pending.then(lambda _: None).wait()", block=True)


def test_calls_of_other_threads_are_recorded(recorded):
    made = recorded(
        "import threading\n"
        "threads = [threading.Thread(target=rpc.remote, args=(w, identity, (x,))) for w in 9 * [1, 2, 3]]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()"
    )
    assert sorted(seen(made)) == [("remote", f"worker{w}", "identity", 12, 0) for w in (1, 2, 3) for _ in range(9)]
