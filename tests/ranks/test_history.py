"""The history of collectives names what differs, with ranks and lines, and nothing where nothing differs."""

import os
import signal
import subprocess
import sys
import time

import ipyparallel as ipp
import pytest
from live import wait_until

SETUP = """
import os, time
from datetime import timedelta
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", timeout=timedelta(seconds=20))
rank, size = dist.get_rank(), dist.get_world_size()

def new_group(name, ranks=None, seconds=3):
    return dist.new_group(ranks, timeout=timedelta(seconds=seconds), group_desc=name)

def tries(function, *arguments, **options):
    try:
        function(*arguments, **options)
    except RuntimeError:
        print("an error")

def all_reduce(group):
    dist.all_reduce(ones, group=group)

ones = torch.ones(4)
MAX, MIN = dist.ReduceOp.MAX, dist.ReduceOp.MIN
"""


def start(world, cell):
    """Have all ranks run a cell as `%%px --noblock` does; its first line is line 2, below the `%%px`."""
    cell = cell.strip("\n") + "\n"
    world._cells.remember(cell)
    return world.view.execute(cell, block=False)


def run(world, cell):
    start(world, cell).get()


def differences(world, name):
    return [found for found in world.history().differences if found.group.description == name]


def lines(difference):
    return {rank: call and (call.line_number, call.line) for rank, call in difference.calls.items()}


TWO_CALLS = """
group = new_group("{name}")
loss, number = torch.ones(1), torch.ones(1)

def add_losses():
    dist.all_reduce(loss, group=group)

def add_numbers():
    dist.all_reduce(number, group=group)

"""


IN_ANOTHER_ORDER = """
if rank == {rank}:
    add_numbers()
    add_losses()
elif rank in dist.get_process_group_ranks(group):
    add_losses()
    add_numbers()
"""


def test_two_calls_are_swapped(world):
    run(world, TWO_CALLS.format(name="swapped") + IN_ANOTHER_ORDER.format(rank=2))
    (found,) = differences(world, "swapped")
    assert (found.kind, found.ranks) == ("swapped", (2,))
    first, second = (6, "dist.all_reduce(loss, group=group)"), (9, "dist.all_reduce(number, group=group)")
    assert lines(found) == {0: first, 1: first, 2: second, 3: first}
    assert [call.op for call in found.calls.values()] == ["SUM"] * 4


def test_two_calls_are_swapped_in_branches_of_their_own(world):
    cell = """
group = new_group("branches")
loss, number = torch.ones(1), torch.ones(1)
if rank == 2:
    work = dist.all_reduce(number, group=group, async_op=True)  # the result has a name here
    dist.all_reduce(loss, group=group)
else:
    dist.all_reduce(loss, group=group)
    dist.all_reduce(number, group=group, async_op=True)
"""
    run(world, cell)
    (found,) = differences(world, "branches")
    assert (found.kind, found.ranks) == ("swapped", (2,))
    assert [call.line_number for call in found.calls.values()] == [8, 8, 5, 8]


def test_one_is_missing_while_the_others_are_stuck_and_when_they_have_failed(world):
    group = 'new_group("missing", seconds=8)'
    cell = TWO_CALLS.replace('new_group("{name}")', group) + "if rank != 1:\n    add_losses()\ntries(add_numbers)"
    answer = start(world, cell)
    # Rank 1 is through, and the others are about to hang in their second call.
    assert wait_until(lambda: [s.call for s in world.where()] == ["all_reduce", "", "all_reduce", "all_reduce"], 10)
    assert wait_until(lambda: differences(world, "missing"), 8)  # until then they may still be in their first
    for _ in range(2):
        (found,) = differences(world, "missing")
        assert (found.kind, found.ranks) == ("missing", (1,))
        place = (6, "dist.all_reduce(loss, group=group)")
        assert lines(found) == {0: place, 1: None, 2: place, 3: place}
        answer.get()
    assert "an error" in answer.stdout[0]


def test_one_is_extra(world):
    run(world, TWO_CALLS.format(name="extra") + "if rank == 3:\n    add_losses()\ntries(add_numbers)")
    (found,) = differences(world, "extra")
    assert (found.kind, found.ranks) == ("extra", (3,))
    assert lines(found) == {0: None, 1: None, 2: None, 3: (6, "dist.all_reduce(loss, group=group)")}


@pytest.mark.parametrize(
    ("kind", "odd", "call"),
    [
        ("operator", 0, "dist.all_reduce(ones, dist.ReduceOp.MAX if rank == 0 else dist.ReduceOp.SUM, group=group)"),
        ("operator", 1, "dist.reduce(ones, 0, dist.ReduceOp.MAX if rank == 1 else dist.ReduceOp.SUM, group=group)"),
        ("source", 1, "tries(dist.broadcast, ones, src=1 if rank == 1 else 0, group=group)"),
        ("shape", 2, "tries(dist.all_reduce, torch.ones(2 if rank == 2 else 4), group=group)"),
        ("dtype", 3, "dist.all_reduce(torch.ones(1, dtype=torch.int32 if rank == 3 else torch.float32), group=group)"),
        ("call", 1, "tries(dist.barrier if rank == 1 else all_reduce, group)"),
    ],
)
def test_a_call_is_another_one(world, kind, odd, call):
    name = f"{kind} {odd}"
    run(world, f"group = new_group('{name}')\n{call}")
    (found,) = differences(world, name)
    assert (found.kind, found.ranks) == (kind, (odd,))
    if "tries" not in call:
        assert lines(found) == {rank: (3, call) for rank in range(4)}
    of_odd, of_others = found.calls[odd], found.calls[(odd + 1) % 4]
    field = {"operator": "op", "source": "src"}.get(kind, kind)
    seen = {
        "operator": ("MAX", "SUM"),
        "source": (1, 0),
        "shape": (((2,),), ((4,),)),
        "dtype": (("int32",), ("float32",)),
        "call": ("barrier", "all_reduce"),
    }
    assert (getattr(of_odd, field), getattr(of_others, field)) == seen[kind]


def test_in_a_subgroup(world):
    cell = TWO_CALLS.format(name="pair").replace('new_group("pair")', 'new_group("pair", [1, 3])')
    run(world, cell + IN_ANOTHER_ORDER.format(rank=3).replace("dist.get_process_group_ranks(group)", "[1, 3]"))
    (found,) = differences(world, "pair")
    assert (found.kind, found.ranks, list(found.calls)) == ("swapped", (3,), [1, 3])
    assert found.group.ranks == (1, 3)


def test_a_late_rank_is_behind_and_nothing_differs(world, tmp_path):
    name, go = "late", tmp_path / "go"
    wait = f"while not os.path.exists({str(go)!r}):\n        time.sleep(0.01)"
    cell = f"group = new_group('late', seconds=20)\nif rank == 2:\n    {wait}\ndist.all_reduce(ones, group=group)"
    answer = start(world, cell)
    assert wait_until(lambda: 2 in world.history().behind, 10)
    history = world.history()
    assert differences(world, name) == []
    assert list(history.behind) == [2] and history.behind[2].line == "dist.all_reduce(ones, group=group)"
    assert "Rank 2 is behind: it has not called all_reduce" in repr(history)
    go.touch()
    answer.get()
    assert world.history().behind == {}


def test_nothing_differs_where_the_library_allows_it(world):
    run(
        world,
        """
group = new_group("allowed")
parts = [torch.zeros(2) for _ in range(size)]
for step in range(3):
    if rank == 1:
        dist.broadcast(ones, src=1, group=group)
    else:
        dist.broadcast(torch.zeros(4), src=1, group=group)
    dist.gather(torch.ones(2), parts if rank == 2 else None, dst=2, group=group)
    dist.scatter(torch.zeros(2), parts if rank == 2 else None, src=2, group=group)
    dist.reduce(ones, dst=3, group=group)
    dist.barrier(group)
dist.all_to_all_single(torch.zeros(10), torch.ones(4 * (rank + 1)), [1, 2, 3, 4], 4 * [rank + 1], group=group)
""",
    )
    assert differences(world, "allowed") == []
    calls = [call for call in world.history().calls[0] if call.group.description == "allowed"]
    assert [call.call for call in calls][:5] == ["broadcast", "gather", "scatter", "reduce", "barrier"]
    assert [(call.src, call.op) for call in calls][:5] == [(1, None), (2, None), (2, None), (3, "SUM"), (None, None)]
    assert [call.number for call in calls] == list(range(1, len(calls) + 1))


def test_the_calls_of_ddp_are_seen(world):
    run(world, "model = DDP(torch.nn.Linear(4, 2), process_group=new_group('ddp'))\nmodel(ones).sum().backward()")
    history = world.history()
    assert differences(world, "ddp") == []
    of_ddp = [call for call in history.calls[1] if call.group.description == "ddp"]
    assert of_ddp[-1].call == "all_reduce" and of_ddp[-1].shape == ((10,),)
    assert (of_ddp[-1].line_number, of_ddp[-1].line) == (3, "model(ones).sum().backward()")


def test_a_running_world_of_many_calls_agrees_and_what_differs_then_is_found(world):
    cell = "for step in range(1500):\n    dist.all_reduce(ones.clone(), group=group)\n    dist.barrier(group)"
    answer = start(world, "group = new_group('long')\n" + cell)
    while not answer.ready():
        assert differences(world, "long") == []
        time.sleep(0.1)
    answer.get()
    assert differences(world, "long") == []
    run(world, "dist.all_reduce(ones, dist.ReduceOp.MIN if rank == 1 else dist.ReduceOp.SUM, group=group)")
    (found,) = differences(world, "long")
    assert (found.kind, found.ranks, found.calls[1].number) == ("operator", (1,), 3001)


def test_after_a_fresh_init_the_history_begins_anew(broken_world):
    run(broken_world, "dist.all_reduce(ones)\ndist.destroy_process_group()")
    assert [len(calls) for calls in broken_world.history().calls.values()] != [0] * 4
    broken_world.new_store()
    run(broken_world, "dist.init_process_group('gloo', timeout=timedelta(seconds=5))\nnew_group('again')")
    history = broken_world.history()
    assert list(history.calls.values()) == [[]] * 4 and history.differences == []
    run(broken_world, "dist.all_reduce(ones)")
    assert [len(calls) for calls in broken_world.history().calls.values()] == [1] * 4


def test_a_dead_rank_has_lost_its_calls_and_the_others_are_compared(broken_world):
    op = "dist.ReduceOp.MAX if rank == 2 else dist.ReduceOp.SUM"
    run(broken_world, f"group = new_group('dead')\ntries(dist.all_reduce, ones, {op}, group)")
    answer = start(broken_world, "if rank == 1:\n    time.sleep(60)\ntries(dist.barrier, group)")
    os.kill(broken_world.pids[1], signal.SIGKILL)
    assert wait_until(lambda: 1 in broken_world._ranks.deaths(), 5)
    history = broken_world.history()
    assert history.lost == {1: "is dead (SIGKILL), and its calls are lost"} and sorted(history.calls) == [0, 2, 3]
    (found,) = differences(broken_world, "dead")
    assert (found.kind, found.ranks) == ("operator", (2,))
    assert "Rank 1 is dead (SIGKILL), and its calls are lost." in repr(history)
    assert wait_until(answer.ready, 10)
    with pytest.raises(ipp.CompositeError):
        answer.get()


def test_the_table_shows_the_last_calls_or_the_latest_difference(broken_world):
    broken_world.restart()
    broken_world.view.execute(SETUP)
    assert repr(broken_world.history()) == "No rank has called a collective."
    run(broken_world, "dist.all_reduce(ones, MAX)\ndist.broadcast(ones, src=1)\ndist.barrier()")
    assert repr(broken_world.history()).splitlines() == [
        "group       number  ranks  call        shape  dtype    op   src  line  code",
        "default_pg       1  all    all_reduce  [4]    float32  MAX          2  dist.all_reduce(ones, MAX)",
        "default_pg       2  all    broadcast   [4]    float32         1     3  dist.broadcast(ones, src=1)",
        "default_pg       3  all    barrier                                  4  dist.barrier()",
        "All ranks agree.",
    ]
    run(broken_world, "dist.all_reduce(ones, MAX if rank == 1 else MIN)")
    shown = repr(broken_world.history()).splitlines()
    assert shown[0] == "Call 4 in group default_pg: rank 1 passes a different operator."
    assert shown[1].split() == ["rank", "call", "shape", "dtype", "op", "src", "line", "code"]
    assert [row.split()[:5] for row in shown[2:]] == [
        [str(rank), "all_reduce", "[4]", "float32", "MAX" if rank == 1 else "MIN"] for rank in range(4)
    ]
    run(broken_world, "dist.reduce(ones, 0, MAX if rank == 2 else MIN)\ndist.reduce(ones, 0, MAX if rank else MIN)")
    shown = repr(broken_world.history()).splitlines()
    assert shown[0] == "Call 6 in group default_pg: rank 0 passes a different operator."
    assert shown[1:6] == repr(broken_world.history().differences[-1]).splitlines()[1:]
    assert shown[6:] == [
        "Earlier differences (2), the latest first:",
        "Call 5 in group default_pg: rank 2 passes a different operator.",
        "Call 4 in group default_pg: rank 1 passes a different operator.",
    ]


def test_calls_are_noted_whoever_else_has_wrapped_what_makes_a_group():
    """Another wrapper than the recorder's own leaves `__wrapped__` behind, too, as that of `relax_gloo` does."""
    code = """
import torch
import torch.distributed as dist
from helpers.probe import recorder
from helpers.ranks import rank
rank.relax_gloo()
recorder.watch()
recorder.watch()
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.ones(1), dist.ReduceOp.MAX)
print([(call.call, call.op) for call in recorder.record().calls])
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.stdout == "[('all_reduce', 'MAX')]\n", ran.stderr
