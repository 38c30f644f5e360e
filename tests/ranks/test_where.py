"""Where each rank is, and with which arguments: named within a deadline, while the ranks hang, and doing no harm."""

import os
import signal
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import ipyparallel as ipp
import pytest
from live import INIT, Notebook, still, wait_until

from helpers import WorldError
from helpers.look.sampling import Sampler
from helpers.look.where import RankState, Whereabouts
from helpers.probe import side_channel, stacks
from helpers.ranks.rank import log_path

SETUP = INIT.format(timeout=25)
SECONDS_TO_NAME = 10

START_RPC = """
import torch.distributed.rpc as rpc

def slow(seconds):
    time.sleep(seconds)
    return seconds

def nested(seconds):
    return rpc.rpc_sync("worker2", slow, args=(seconds,))

class Sleeper:
    def sleep(self, seconds):
        time.sleep(seconds)

rpc.init_rpc(f"worker{rank}", rank=rank, world_size=size)
"""


def start(world, cell):
    """Start a cell on all ranks, as `%%px --noblock` does."""
    cell = textwrap.dedent(cell).lstrip("\n")
    world._cells.remember(cell)
    return world.view.execute(cell, silent=False, block=False)


def where_when(world, calls, serves=MappingProxyType({})):
    """Return where the ranks are when each is in its call and serves its requests; they are named while they hang.

    Calls are given by rank, and so are the requests, a set for each rank.
    """

    def are_there():
        where = world.where()
        in_calls = all(where[rank].call == call for rank, call in calls.items())
        return in_calls and all(set(where[rank].serves) == requests for rank, requests in serves.items())

    assert wait_until(are_there, 20), world.where()
    begin = time.monotonic()
    where = world.where()
    assert time.monotonic() - begin < SECONDS_TO_NAME
    return where


def arguments(state):
    """Return the arguments of a rank, but for the name of its group, which is torch's to give."""
    return {name: value for name, value in state.arguments.items() if name != "group_name"}


def test_the_arguments_of_messages_and_of_what_a_handle_is_of(broken_world):
    start(
        broken_world,
        """
        others = dist.new_group([2, 3])
        if rank == 0:
            dist.recv(torch.zeros(2, 3), tag=7)
        if rank == 1:
            work = dist.irecv(torch.zeros(3, dtype=torch.int64), src=0)
            work.wait()
        if rank == 2:
            dist.send(torch.ones([]), group=others, group_dst=1)
        """,
    )
    where = where_when(broken_world, {0: "recv", 1: "wait", 2: "send"})
    everybody = [0, 1, 2, 3]
    assert arguments(where[0]) == {"tensor": "float32[2, 3]", "src": "any", "group": everybody, "tag": 7}
    assert arguments(where[1]) == {"of": "irecv", "tensor": "int64[3]", "src": 0, "group": everybody}
    assert arguments(where[2]) == {"tensor": "float32[]", "dst": 3, "group": [2, 3]}
    assert arguments(where[3]) == {}
    assert [state.differs for state in where] == [()] * 4
    rows = repr(where).splitlines()
    assert rows[1].split("recv  ")[1].split("     ")[0] == "float32[2, 3], src=any, tag=7"
    assert "of irecv, int64[3], src=0 " in rows[2] and "work.wait()" in rows[2]
    assert "float32[], dst=3, group=[2, 3] " in rows[3]


def test_a_look_that_waits_for_a_call_or_a_state(broken_world):
    start(broken_world, "if rank == 0:\n    time.sleep(1)\nif rank < 2:\n    dist.recv(torch.zeros(1), src=3)\n")
    where = broken_world.where(until={0: "recv", 1: "busy", 2: "idle"})
    assert [state.call for state in where] == ["recv", "recv", "", ""]


def test_a_look_that_waits_for_what_does_not_come_ends_after_ten_seconds(world):
    begin = time.monotonic()
    where = world.where(until={0: "recv"})
    assert 10 <= time.monotonic() - begin < 10 + SECONDS_TO_NAME
    assert [state.state for state in where] == ["idle"] * 4


def test_a_rank_in_a_call_of_the_notebook_is_busy_and_has_a_line(broken_world):
    with ThreadPoolExecutor(1) as pool:
        called = pool.submit(lambda: broken_world.call("dist.barrier", targets=[0, 1]))
        where = where_when(broken_world, {0: "barrier", 1: "barrier"})
        assert [state.state for state in where] == ["busy", "busy", "idle", "idle"]
        assert where[0].seconds > 0
        assert where[0].line == 'called = pool.submit(lambda: broken_world.call("dist.barrier", targets=[0, 1]))'
        with pytest.raises(WorldError, match="^It needs every rank idle, and rank 0 is busy"):
            broken_world.require_idle("It")
        broken_world.call("dist.barrier", targets=[2, 3])
        assert called.result() == [None, None]


def test_a_rank_is_busy_with_what_the_view_sent(broken_world):
    answer = broken_world.view.client[1].apply_async(ipp.Reference("dist.barrier"))
    where = where_when(broken_world, {1: "barrier"})
    assert (where[1].state, where[1].seconds, where[1].line) == ("busy", None, "")
    with pytest.raises(WorldError, match="^It needs every rank idle, and rank 1 is busy"):
        broken_world.require_idle("It")
    assert not answer.ready()


def test_the_arguments_of_collectives(broken_world):
    start(
        broken_world,
        """
        pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        if rank == 0:
            dist.all_gather([torch.zeros(2), torch.zeros(2)], torch.ones(2), group=pairs[0])
        if rank == 2:
            work = dist.all_reduce(torch.ones(5), op=dist.ReduceOp.MAX, group=pairs[1], async_op=True)
            list(map(dist.Work.wait, [work]))
        """,
    )
    where = where_when(broken_world, {0: "all_gather", 2: "wait"})
    assert arguments(where[0]) == {"tensor_list": "2 x float32[2]", "tensor": "float32[2]", "group": [0, 1]}
    assert arguments(where[2]) == {"of": "all_reduce", "tensor": "float32[5]", "op": "MAX", "group": [2, 3]}


def test_a_call_of_other_code_tells_of_the_collective_in_it(broken_world):
    start(
        broken_world,
        """
        exec(compile("def average(tensor, group):\\n    dist.all_reduce(tensor, group=group)", "a module", "exec"))
        some = dist.new_group([0, 1, 2])
        if rank == 0:
            average(torch.ones(2), some)
        if rank == 1:
            dist.all_gather_object([None] * 3, "here", group=some)
        """,
    )
    where = where_when(broken_world, {0: "average", 1: "all_gather_object"})
    assert arguments(where[0]) == {"in": "all_reduce", "tensor": "float32[2]", "op": "SUM", "group": [0, 1, 2]}
    assert where[0].line == "average(torch.ones(2), some)"
    assert arguments(where[1]) == {"group": [0, 1, 2]}
    assert "average            in all_reduce, float32[2], op=SUM, group=[0, 1, 2] " in repr(where)


class Odd(NamedTuple):
    """Ranks that hang in a cell, which arguments of which rank differ, and what the table shows of one of them."""

    cell: str
    hang: list[int]
    differ: dict[int, tuple[str, ...]]
    shown: str = ""


ODD = {
    "shape": Odd(
        "if rank:\n    dist.broadcast(torch.ones(4 if rank == 2 else 2), src=0)\n",
        [1, 2, 3],
        {2: ("tensor",)},
        "float32[4] (differs), src=0",
    ),
    "type": Odd(
        "if rank:\n    dist.broadcast(torch.ones(2, dtype=torch.float64 if rank == 3 else None), src=0)\n",
        [1, 2, 3],
        {3: ("tensor",)},
        "float64[2] (differs), src=0",
    ),
    "source": Odd(
        "if rank:\n    dist.broadcast(torch.ones(2), src=1 if rank == 3 else 0)\n",
        [1, 2, 3],
        {3: ("src",)},
        "float32[2], src=1 (differs)",
    ),
    "operator": Odd(
        "if rank:\n    dist.all_reduce(torch.ones(2), dist.ReduceOp.MAX if rank == 1 else dist.ReduceOp.SUM)\n",
        [1, 2, 3],
        {1: ("op",)},
        "float32[2], op=MAX (differs)",
    ),
    "group": Odd(
        "pair = dist.new_group([0, 1])\ndist.barrier(pair if rank == 1 else None)\n",
        [0, 1, 2, 3],
        {1: ("group",)},
        "group=[0, 1] (differs) ",
    ),
    "another group of the same ranks": Odd(
        "again = dist.new_group()\ndist.barrier(again if rank == 2 else None)\n",
        [0, 1, 2, 3],
        {2: ("group_name",)},
        "group_name=",
    ),
    "handle": Odd(
        "if rank:\n    dist.broadcast(torch.ones(3 if rank == 1 else 2), src=0, async_op=True).wait()\n",
        [1, 2, 3],
        {1: ("tensor",)},
        "of broadcast, float32[3] (differs), src=0",
    ),
    "one against one": Odd(
        "if rank > 1:\n    dist.broadcast(torch.ones(rank), src=0)\n",
        [2, 3],
        {2: ("tensor",), 3: ("tensor",)},
        "float32[3] (differs), src=0",
    ),
    "nobody, as each pair has its own group": Odd(
        "pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]\n"
        "if rank % 2:\n    dist.all_reduce(torch.ones(rank), group=pairs[rank // 2])\n",
        [1, 3],
        {},
    ),
    "nobody, as messages may differ": Odd("if rank:\n    dist.recv(torch.ones(rank), src=0)\n", [1, 2, 3], {}),
}


@pytest.mark.parametrize("what", ODD)
def test_the_odd_one_out_is_marked(broken_world, what):
    odd = ODD[what]
    start(broken_world, odd.cell)

    # new_group, before the call that hangs, has arguments as well.
    def the_right_ranks_hang():
        hanging = [state for state in broken_world.where() if state.arguments]
        return [state.rank for state in hanging] == odd.hang and all(state.call != "new_group" for state in hanging)

    assert wait_until(the_right_ranks_hang, 20), broken_world.where()
    begin = time.monotonic()
    where = broken_world.where()
    assert time.monotonic() - begin < SECONDS_TO_NAME
    assert {state.rank: state.differs for state in where if state.differs} == odd.differ
    assert odd.shown in repr(where) and repr(where).count("(differs)") == sum(map(len, odd.differ.values()))


def test_ranks_that_were_asked_go_on_as_if_they_had_not_been(world):
    answer = start(world, "box = torch.full((3,), float(rank))\nif rank:\n    dist.broadcast(box, src=0)\n")
    where_when(world, {1: "broadcast", 2: "broadcast", 3: "broadcast"})
    for _ in range(10):
        assert world.where()[3].arguments["tensor"] == "float32[3]"
    world.view.client[0].execute("dist.broadcast(box, src=0)").get(20)
    answer.get(20)
    assert [box.tolist() for box in world.view["box"]] == [[0.0] * 3] * 4


def test_a_call_without_its_values_while_another_thread_keeps_the_lock_of_python(broken_world, tmp_path):
    go = tmp_path / "go"
    start(
        broken_world,
        f"""
        import threading

        def keep_the_lock():
            while not os.path.exists({str(go)!r}):
                time.sleep(0.01)
            sum(range(10**15))

        if rank == 1:
            threading.Thread(target=keep_the_lock, daemon=True).start()
            dist.recv(torch.zeros(1), src=0)
        """,
    )
    where_when(broken_world, {1: "recv"})
    go.touch()
    assert wait_until(lambda: not broken_world.where()[1].arguments, 10)
    for _ in range(3):
        where = where_when(broken_world, {1: "recv"})
        assert (where[1].state, where[1].line_number, arguments(where[1])) == ("busy", 11, {})
    written = Path(broken_world._directory, "rank-1.stacks").read_text()
    assert written.count("most recent call first") == 1, written  # one answer, however often the rank is asked


def test_stopped_ranks_do_not_keep_the_answers_of_the_others_from_the_notebook(broken_world):
    stopped = [broken_world.pids[rank] for rank in (0, 1, 2)]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    assert wait_until(lambda: [state.state for state in broken_world.where()] == ["silent"] * 3 + ["idle"], 10)
    length = 10_000_000  # more than a socket holds
    answers = broken_world._ranks.ask(range(4), bytes, length, seconds=1)
    assert {rank: len(answer) for rank, answer in answers.items()} == {3: length}
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    assert wait_until(lambda: [state.state for state in broken_world.where()] == ["idle"] * 4, 10)


def test_a_rank_that_dies_of_a_question_gives_no_answer(broken_world):
    dies_on_rank_1 = "import os\nif os.environ['RANK'] == '1':\n    os._exit(1)"
    assert broken_world._ranks.ask([1, 2], exec, dies_on_rank_1, seconds=5) == {2: None}
    assert wait_until(lambda: [state.state for state in broken_world.where()] == ["idle", "dead", "idle", "idle"], 5)


def test_an_argument_of_a_class_that_only_the_ranks_know(broken_world):
    start(
        broken_world,
        """
        import enum

        class Tag(enum.IntEnum):
            GRADIENTS = 3

        class Unlike:
            def __index__(self):
                return 4

        if rank == 0:
            dist.recv(torch.zeros(1), src=1, tag=Tag.GRADIENTS)
        if rank == 1:
            dist.recv(torch.zeros(1), src=0, tag=Unlike())
        """,
    )
    where = where_when(broken_world, {0: "recv", 1: "recv"})
    assert arguments(where[0])["tag"] == 3 and type(arguments(where[0])["tag"]) is int
    assert arguments(where[1]) == {} and where[1].line.startswith("dist.recv(torch.zeros(1), src=0, tag=Unlike")


def test_a_rank_whose_helpers_raise_says_so_and_is_not_taken_for_a_silent_one(broken_world):
    damage = "arguments.of = connections.carried = recorder._notes_by_thread = None"
    cell = f"from helpers.probe import arguments, connections, recorder\n{damage}"
    broken_world.view.client[1].execute(cell, block=True)
    why = "could not answer, because its helpers raised TypeError: 'NoneType' object is not callable"
    where = broken_world.where()
    assert [(state.state, state.line) for state in where] == [("idle", ""), ("silent", why), ("idle", ""), ("idle", "")]
    assert why[:40] in repr(where)
    history = broken_world.history()
    assert history.lost == {1: why} and f"Rank 1 {why}." in repr(history)
    assert Sampler().look(broken_world._ranks, broken_world._cells)[1].state == where[1]
    with pytest.raises(WorldError, match=f"^Rank 1 {why}. Call world.restart"):
        broken_world.post_mortem(1)
    log = log_path(broken_world._directory, 1).read_text()
    assert log.count("TypeError: 'NoneType' object is not callable") >= 3 and "Traceback" in log


def test_when_the_folder_of_the_world_is_gone_a_sentence_says_so(broken_world):
    written_to = Path(broken_world._directory, "rank-2.stacks")
    paths = [side_channel.address(broken_world._directory, 2), written_to]
    for path in paths:
        path.rename(path.with_suffix(".moved"))
    with pytest.raises(WorldError, match="^The temporary folder of this world, .*, or a file in it was removed. Make"):
        broken_world.where()
    for path in paths:
        path.with_suffix(".moved").rename(path)


def test_a_handle_does_not_live_longer_for_being_known(world):
    world.view.execute(
        """
        import gc, time, weakref
        from helpers.probe import handles
        before = len(handles.made_by)
        tensor = torch.ones(1000)
        dist.all_reduce(tensor)
        unknown = len(handles.made_by) - before
        work = dist.all_reduce(tensor, async_op=True)
        kept = weakref.ref(tensor)
        known = len(handles.made_by) - before
        work.wait()
        del work, tensor
        gc.collect()
        left = len(handles.made_by) - before
        deadline = time.monotonic() + 5  # gloo's thread may hold the work a moment longer
        while kept() is not None and time.monotonic() < deadline:
            time.sleep(0.01)
        freed = kept() is None
        """
    )
    assert world.view.pull(["unknown", "known", "left", "freed"]) == [[0, 1, 0, True]] * 4


def test_whom_a_rank_waits_for_and_what_its_server_threads_run(broken_world):
    start(broken_world, START_RPC).get(20)
    start(
        broken_world,
        """
        if rank == 0:
            rpc.rpc_sync(1, nested, args=(1000,))
        if rank == 3:
            answer = rpc.rpc_async("worker2", slow, args=(1000,))
            answer.wait()
        """,
    )
    serves = {1: {"nested for rank 0"}, 2: {"2 x slow for ranks 1, 3"}}
    where = where_when(broken_world, {0: "rpc_sync", 1: "rpc_sync", 3: "wait"}, serves)
    assert arguments(where[0]) == {"to": "worker1", "function": "nested"}
    assert (where[1].state, arguments(where[1])) == ("serving", {"to": "worker2", "function": "slow"})
    assert arguments(where[3]) == {"of": "rpc_async", "to": "worker2", "function": "slow"}
    assert [set(state.serves) for state in where] == [set(), serves[1], serves[2], set()]
    assert where[2].line == "time.sleep(seconds)"
    assert "2 x slow for ranks 1, 3 " in repr(where)


def test_whom_a_rank_waits_for_in_a_remote_call_and_in_several(broken_world):
    start(broken_world, START_RPC).get(20)
    start(
        broken_world,
        """
        if rank == 0:
            rpc.remote("worker1", slow, args=(1000,)).to_here()
        if rank == 3:
            torch.futures.wait_all([rpc.rpc_async(f"worker{to}", time.sleep, args=(1000,)) for to in (1, 2, 2)])
        """,
    )
    serves = {1: {"slow for rank 0", "sleep for rank 3"}, 2: {"2 x sleep for rank 3"}}
    where = where_when(broken_world, {0: "to_here", 3: "wait_all"}, serves)
    assert arguments(where[0]) == {"of": "remote", "to": "worker1", "function": "slow"}
    assert arguments(where[3]) == {"of": "3 calls", "to": "worker1, worker2", "function": "sleep"}
    assert (set(where[1].serves), set(where[2].serves)) == (serves[1], serves[2])
    assert where[2].state == "idle"


def test_whom_a_rank_waits_for_in_a_call_on_an_rref(broken_world):
    start(broken_world, START_RPC).get(20)
    start(
        broken_world,
        """
        if rank == 0:
            sleeper = rpc.remote("worker1", Sleeper)
            sleeper.rpc_sync().sleep(1000)
        if rank == 3:
            sleeper = rpc.remote("worker2", Sleeper)
            answer = sleeper.rpc_async().sleep(1000)
            answer.wait()
        """,
    )
    serves = {1: {"sleep for rank 0"}, 2: {"sleep for rank 3"}}
    where = where_when(broken_world, {0: "rpc_sync", 3: "wait"}, serves)
    assert arguments(where[0]) == {"to": "worker1", "function": "sleep"}
    assert arguments(where[3]) == {"of": "rpc_async", "to": "worker2", "function": "sleep"}
    assert (set(where[1].serves), set(where[2].serves)) == (serves[1], serves[2])


def test_an_interrupt_shows_the_values(request):
    notebook = Notebook()
    request.addfinalizer(notebook.close)
    notebook.run("from helpers import World\nworld = World(2)")
    notebook.run("%%px\n" + INIT.format(timeout=20))
    is_stuck = notebook.sees(still("world.where()[1].call == 'recv'"))
    shown = notebook.run("%%px\nif rank == 1:\n    dist.recv(torch.zeros(2, 2), src=0)", interrupt_when=is_stuck)
    row = next(line for line in shown.splitlines() if line.split()[:2] == ["1", "busy"])
    assert row.endswith("recv  float32[2, 2], src=0     3  dist.recv(torch.zeros(2, 2), src=0)")


def test_the_line_of_the_learner_is_cut_off_before_the_values():
    tensors = {"tensor_list": "16 x float32[1024, 1024]", "tensor": "float32[1024, 1024]"}
    values = {**tensors, "group": [0, 1], "group_name": "1"}
    line = "dist.all_gather(a_list_with_a_long_name, a_tensor_with_a_long_name, group=a_group_with_a_long_name)"
    states = [RankState(rank, "busy", 1.0, "all_gather", 12, line, values) for rank in range(4)]
    rows = repr(Whereabouts(states)).splitlines()[1:]
    shown = "tensor_list=16 x float32[1024, 1024], float32[1024, 1024], group=[0, 1] "
    assert all(shown in row and row.endswith("dist.all_gather(a_list_with...") for row in rows)
    assert repr(Whereabouts([RankState(0, "idle")])).splitlines()[0] == "rank  state  for  call  line  code"


def test_of_an_answer_that_came_late_and_the_next_one_the_last_counts():
    late, answer = (
        f'Stack (most recent call first):\n  File "{path}", line 2 in {function}\n  File "c d", line 3 in <module>\n'
        for path, function in (("a", "f"), ("b", "g"))
    )
    assert stacks.parse(late + answer) == stacks.parse(answer)
    main_thread, others = stacks.parse(answer)
    assert main_thread == [stacks.Frame("b", 2, "g", {}), stacks.Frame("c d", 3, "<module>", {})] and others == []


def test_looks_again_until_any_rank_is_dead(broken_world):
    os.kill(broken_world.pids[2], signal.SIGKILL)
    where = broken_world.where(until="dead")
    assert [state.state for state in where] == ["idle", "idle", "dead", "idle"]
