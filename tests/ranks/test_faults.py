"""What must never happen: a rank hangs the learner, a restart does not help, a process is left behind."""

import os
import random
import re
import signal
import subprocess
import sys
import time

import ipyparallel as ipp
import psutil
import pytest
from lesson_files import at_night
from live import INIT, SUM, Notebook, left_after, ranks_that_raised, still, wait_until

import helpers.ranks.supervisor
from helpers import World, WorldError
from helpers.look.where import NO_CONNECTION

SECONDS_TO_VANISH = 30  # at most, on a busy machine


@pytest.fixture(scope="module")
def world():
    world = World(4)
    yield world
    world.stop()


@pytest.fixture(scope="module")
def kernel():
    notebook = Notebook()
    yield notebook
    notebook.close()


@pytest.fixture
def shared(kernel):
    """A notebook without a world and without variables, for tests that leave its kernel in order."""
    kernel.run("%reset -f")
    yield kernel
    assert kernel.run("world.stop()") == ""


def assert_works(world):
    world.restart()
    world.view.execute(INIT.format(timeout=10) + SUM)
    assert world.view["rank"] == list(range(world.size))
    assert [state.state for state in world.where()] == ["idle"] * world.size


def errors_of(answer):
    with pytest.raises(ipp.CompositeError) as composite:
        answer.get()
    return composite.value.elist


@pytest.mark.parametrize("victim", [0, at_night(1), at_night(2), 3])
def test_a_rank_is_killed_during_a_collective(world, victim):
    assert_works(world)
    world.view.execute("dist.destroy_process_group()")
    world.new_store()
    world.view.execute(INIT.format(timeout=6))
    others = [rank for rank in range(4) if rank != victim]
    answer = world.view.client[others].execute("dist.all_reduce(torch.ones(1))", block=False)
    assert wait_until(lambda: all(world.where()[rank].call == "all_reduce" for rank in others), 10), world.where()
    os.kill(world.pids[victim], signal.SIGKILL)
    killed = time.monotonic()
    assert wait_until(lambda: world.where()[victim].state == "dead", 10)
    assert wait_until(answer.ready, 30), world.where()
    print(f"seen dead and answered by the others after {time.monotonic() - killed:.2f} s")
    assert [error[0] for error in errors_of(answer)] == ["RuntimeError"] * 3
    assert_works(world)


def test_restart_when_every_rank_is_stuck(world):
    assert_works(world)
    world.view.execute("dist.recv(torch.zeros(1), src=(rank + 1) % size)", block=False)
    assert wait_until(lambda: all(s.state == "busy" for s in world.where()), 5), world.where()
    assert_works(world)


def test_restart_when_every_rank_is_dead(world):
    assert_works(world)
    for pid in world.pids:
        os.kill(pid, signal.SIGKILL)
    assert_works(world)


def test_restart_when_rpc_is_half_made(world):
    assert_works(world)
    start_rpc = "import torch.distributed.rpc as rpc; rpc.init_rpc(f'rank{rank}', rank=rank, world_size=size)"
    world.view.client[0].execute(start_rpc, block=False)
    assert wait_until(lambda: world.where()[0].call == "init_rpc", 20), world.where()
    assert_works(world)


def test_restart_when_a_rank_is_stopped_by_a_signal(world):
    assert_works(world)
    os.kill(world.pids[1], signal.SIGSTOP)
    assert wait_until(lambda: world.where()[1].state == "silent", 5)  # a signal takes a moment
    assert_works(world)


def test_restart_when_the_controller_is_dead(world):
    assert_works(world)
    os.kill(world._ranks._controller.pid, signal.SIGKILL)
    # No rank says that it is idle: a cell would not reach it.
    assert wait_until(lambda: [state.state for state in world.where()] == ["cut off"] * 4, 5)
    assert repr(world.where()).startswith(NO_CONNECTION + "\nrank ")
    assert repr(world).splitlines()[1] == NO_CONNECTION
    with pytest.raises(WorldError, match="^A fresh store needs every rank idle, and rank 0 is cut off.$"):
        world.new_store()
    assert_works(world)
    assert NO_CONNECTION not in repr(world)


def test_restart_when_the_controller_does_not_answer(world):
    assert_works(world)
    os.kill(world._ranks._controller.pid, signal.SIGSTOP)
    assert_works(world)


def test_a_killed_supervisor_leaves_nothing_of_its_ranks_and_a_restart_helps(world):
    assert_works(world)
    world.view.execute(START_OTHERS)
    started = [psutil.Process(pid) for pids in [world.pids, *world.view["others"]] for pid in pids]
    assert len(started) == 12
    psutil.Process(world.pids[0]).parent().kill()
    assert left_after(started, SECONDS_TO_VANISH) == []
    with pytest.raises(WorldError, match="has ended. Call world.restart"):
        world.restart(rank=0)
    assert_works(world)


def test_two_ranks_die_at_once_and_each_is_replaced(world):
    assert_works(world)
    pids = world.pids
    for rank in (0, 1):
        os.kill(pids[rank], signal.SIGKILL)
    for rank in (0, 1):
        world.restart(rank=rank)
    assert [new == old for new, old in zip(world.pids, pids, strict=True)] == [False, False, True, True]
    assert [state.state for state in world.where()] == ["idle"] * 4


def test_a_supervisor_that_is_stopped_is_not_waited_for_without_end(world, monkeypatch):
    assert_works(world)
    monkeypatch.setattr(helpers.ranks.supervisor, "_SECONDS_TO_ANSWER", 0.5)
    os.kill(world._ranks._supervisor.pid, signal.SIGSTOP)
    for use in (world.new_store, lambda: world.restart(rank=0)):
        with pytest.raises(WorldError, match=r"has not answered for 0.5 s. Call world.restart\(\)"):
            use()
    monkeypatch.undo()
    assert_works(world)


def test_a_store_that_is_killed_is_followed_by_another_at_the_same_port(world):
    assert_works(world)
    world.view.execute("dist.destroy_process_group()")
    (store,) = [
        child for child in psutil.Process(world._ranks._supervisor.pid).children() if child.pid not in world.pids
    ]
    store.kill()
    world.view.execute(INIT.format(timeout=10) + SUM)
    assert world.view["total"] == [10.0] * 4


def test_a_cell_says_that_the_controller_is_dead_also_one_that_waits(notebook):
    notebook.run("from helpers import World\nworld = World(2)")
    directory = notebook.run("print(world._directory)").strip()
    notebook.run("import os, signal, threading\nkill = lambda: os.kill(world._ranks._controller.pid, signal.SIGKILL)")
    notebook.when("all(state.line for state in world.where())", "kill()")
    dead = "WorldError: The process that carries messages between the notebook and its ranks has died. Call world.rest"
    assert dead in notebook.run("%%px\nimport time\ntime.sleep(1000)")
    assert dead in notebook.run("%%px\nprint('not run')")
    assert notebook.run("world.restart()\n%px print('run')").endswith("[stdout:0-1] \nrun\n")
    notebook.run("import time\nkill()\nwhile world._ranks.is_connected():\n    time.sleep(0.01)")
    assert notebook.run("world.stop()") == ""
    assert only_multiprocessing_is_left(notebook)
    assert not os.path.exists(directory)


def test_a_fresh_store_is_refused_while_a_rank_is_busy(world):
    assert_works(world)
    world.view.execute("dist.recv(torch.zeros(1), src=(rank + 1) % size)", block=False)
    assert wait_until(lambda: world.where()[0].state == "busy", 5)
    with pytest.raises(WorldError, match="^A fresh store needs every rank idle, and rank 0 is busy.$"):
        world.new_store()


def test_a_world_that_has_ended_is_forgotten(notebook):
    notebook.run("from helpers import World\nfor _ in range(2):\n    World(1)\nworld = World(1)\nworld.stop()")
    count = "import gc\ngc.collect()\nprint(sum(type(thing) is World for thing in gc.get_objects()))"
    assert notebook.run(count) == "1\n"


def test_interrupt_while_stuck(shared):
    shared.run("from helpers import World\nworld = World(4)")
    shared.run("%%px\n" + INIT.format(timeout=15))
    stuck = "%%px\nprint('here')\nif rank == 1:\n    dist.recv(torch.zeros(1), src=0)\n"
    waits = "[where.call or where.state for where in world.where()] == ['idle', 'recv', 'idle', 'idle']"
    shown = shared.run(stuck, interrupt_when=shared.sees(still(waits)))
    assert "rank 1 is inside a call that an interrupt does not reach" in shown
    assert "[stdout:0]\nhere" in shown and "[stdout:3]\nhere" in shown  # what the others printed is not lost
    row = next(line for line in shown.splitlines() if line.split()[:2] == ["1", "busy"])
    assert row.endswith("recv  float32[1], src=0     4  dist.recv(torch.zeros(1), src=0)")
    assert "world.restart()" in shown

    refused = shared.run("%%px\nprint('not run')")
    assert "This cell was not run: rank 1 is still in the call" in refused
    assert shared.run("%%px --targets 0\nprint('run')") == "[stdout:0] \nrun\n"
    states = "print([state.state for state in world.where()])"
    # After the timeout of the group the rank has an error to tell, which takes it a while on a busy machine.
    assert wait_until(lambda: "busy" not in shared.run(states), 60)
    assert shared.run("%%px\nprint('run')") == "[stdout:0-3] \nrun\n"
    assert shared.run(states) == "['idle', 'idle', 'idle', 'idle']\n"


def test_interrupt_shows_the_error_of_the_rank_that_the_others_wait_for(shared):
    shared.run("from helpers import World\nworld = World(2)")
    shared.run("%%px\n" + INIT.format(timeout=20))
    waits = "(where := world.where())[0].call == 'recv' and where[1].state == 'idle'"
    cell = "%%px\nif rank == 1:\n    open('/nowhere')\ndist.recv(torch.zeros(1), src=1)"
    shown = shared.run(cell, interrupt_when=shared.sees(still(waits)))
    assert "rank 0 is inside a call that an interrupt does not reach" in shown
    assert "Rank 1 raised FileNotFoundError: [Errno 2] No such file or directory: '/nowhere'" in shown


def test_what_all_print_alike_is_shown_once(shared):
    shared.run("from helpers import World\nworld = World(4)\n%px import os, sys")
    say = "print('hello')"
    assert shared.run(f"%px {say}") == "[stdout:0-3] \nhello\n"
    assert shared.run(f"%%px --targets 0,2\n{say}") == "[stdout:0,2] \nhello\n"
    assert shared.run(f"%%px --targets 2\n{say}") == "[stdout:2] \nhello\n"
    apart = "".join(f"[stdout:{rank}] \nhello\n" for rank in range(4))
    assert shared.run(f"%%px -e\n{say}") == apart
    assert shared.run("%px print('hello' if os.environ['RANK'] != '3' else 'hi')").endswith("[stdout:3] \nhi\n")
    assert shared.run(f"%%px --out answer\n{say}\nprint('bad', file=sys.stderr)").startswith("[stdout:0-3] \nhello\n")
    kept = str(["hello\n"] * 4)
    assert shared.run("print(answer.stdout, answer.engine_id)") == f"{kept} {[0, 1, 2, 3]}\n"


def test_a_cell_that_a_rank_has_not_run_says_so(shared):
    shared.run("from helpers import World\nworld = World(2)")
    shared.run("%%px\n" + INIT.format(timeout=20))
    # The kernel may have read that cell already, and then nothing comes any more.
    until_the_next_cell_is_there = "get_ipython().kernel.shell_stream.socket.poll(15_000)"
    shared.run(f"%%px --noblock\nif rank == 1:\n    {until_the_next_cell_is_there}\n    1 / 0")
    shown = shared.run("%%px\nprint('run')")
    assert "[stdout:0] \nrun" in shown
    assert "WorldError: This cell did not run on rank 1: it had to wait for an earlier cell, which" in shown
    assert shared.run("%%px\nprint('run')") == "[stdout:0-1] \nrun\n"


def test_interrupt_of_python_code_brings_every_rank_back(shared):
    shared.run("from helpers import World\nworld = World(2)")
    all_are_inside = shared.sees("all(state.line for state in world.where())")
    shown = shared.run("%%px\nimport time\nwhile True:\n    time.sleep(0.01)", interrupt_when=all_are_inside)
    assert ranks_that_raised(shown) in ("0-1", "0 1") and "KeyboardInterrupt" in shown
    assert shared.run("%%px\nprint('run')") == "[stdout:0-1] \nrun\n"


def test_a_rank_that_takes_long_to_tell_of_its_interrupt_is_not_taken_for_stuck(shared):
    shared.run("from helpers import World\nworld = World(2)")
    shared.run(
        "%%px\nimport time\nshow = get_ipython()._showtraceback\n"
        "source = 'def slowly(*error):\\n    time.sleep(2)\\n    show(*error)'\n"
        "exec(compile(source, 'not a cell', 'exec'))\n"
        "get_ipython()._showtraceback = slowly"
    )
    all_are_inside = shared.sees("all(state.line for state in world.where())")
    shown = shared.run("%%px\nwhile True:\n    time.sleep(0.01)", interrupt_when=all_are_inside)
    assert ranks_that_raised(shown) in ("0-1", "0 1") and "KeyboardInterrupt" in shown


def test_interrupt_of_a_call_ends_the_work_of_the_ranks(shared):
    shared.run("from helpers import World\nworld = World(2)")
    shared.run("%%px\nimport time\ndef spin():\n    while True:\n        time.sleep(0.01)")
    all_are_inside = shared.sees("all(state.line for state in world.where())")
    shown = shared.run("world.call('spin')", interrupt_when=all_are_inside)
    assert "KeyboardInterrupt" in shown
    assert shared.run("print({state.state for state in world.where()})") == "{'idle'}\n"
    assert shared.run("world.call('time.monotonic_ns', targets=1) > 0") == "True"


# Interrupts the notebook after the first of the messages that a cell or a call sends.
INTERRUPT_WHILE_SENDING = """
import os, signal

def interrupt_after(name):
    client = world._ranks.client
    send = getattr(client, name)
    def send_and_interrupt(*arguments, **options):
        delattr(client, name)
        try:
            return send(*arguments, **options)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
    setattr(client, name, send_and_interrupt)
"""


@pytest.mark.parametrize(
    ("sends", "cell"),
    [
        ("send_execute_request", "%%px\nwhile True:\n    time.sleep(0.01)"),
        ("send_apply_request", "world.call('spin')"),
    ],
    ids=["a cell", "a call"],
)
def test_an_interrupt_between_the_messages_to_two_ranks_ends_the_work_of_both(shared, sends, cell):
    shared.run("from helpers import World\nworld = World(2)" + INTERRUPT_WHILE_SENDING)
    shared.run("%%px\nimport time\ndef spin():\n    while True:\n        time.sleep(0.01)")
    shared.run(f"interrupt_after({sends!r})")
    assert "KeyboardInterrupt" in shared.run(cell)
    assert shared.run("print({state.state for state in world.where()})") == "{'idle'}\n"
    assert shared.run("%%px\nprint('run')") == "[stdout:0-1] \nrun\n"


def test_no_answer_is_lost_to_an_interrupt(world):
    """A signal may arrive at any moment of a call, even before the function begins, or while the rank answers."""
    rank = world.call(os.getpid, targets=0)
    moments = random.Random(0)
    for _ in range(150):  # without RankKernel an eighth of the answers is lost
        answer = world.view.apply_async(int)
        time.sleep(moments.uniform(0, 0.01))
        os.kill(rank, signal.SIGINT)
        assert answer.wait(30)


INTERRUPT_AT_EVERY_CHANGE = """
import os, signal, sys

def interrupt(frame, event, result):
    if event == "return" and frame.f_code is signal.signal.__code__:
        os.kill(os.getpid(), signal.SIGINT)

sys.setprofile(interrupt)
"""


def test_a_rank_survives_an_interrupt_while_it_changes_the_handler_of_interrupts(world):
    """It does so before and after every message; here the rank interrupts itself whenever `signal.signal` returns."""
    rank = world.call(os.getpid, targets=0)
    world.view.execute(f"exec({INTERRUPT_AT_EVERY_CHANGE!r}, {{}})")  # outside of the learner's variables
    for _ in range(5):
        assert world.call(os.getpid, targets=0) == rank
    world.view.execute("import sys; sys.setprofile(None)")


def test_interrupt_of_a_check_ends_the_work_of_the_ranks(shared):
    shared.run("from helpers import World, checks\nworld = World(2)")
    shared.run("%%px\nimport time\ndef mean(numbers):\n    while True:\n        time.sleep(0.01)")
    all_are_inside = shared.sees("all(state.line for state in world.where())")
    shown = shared.run("checks.collectives.mean(world)", interrupt_when=all_are_inside)
    assert "WorldError: You interrupted the check of `mean`, and every rank has left it." in shown
    assert re.search(r"KeyboardInterrupt.*time\.sleep\(0\.01\)", shared.run("world.post_mortem(1)"), re.DOTALL)
    assert shared.run("print({state.state for state in world.where()})") == "{'idle'}\n"
    shared.run("%%px\ndef mean(numbers):\n    return None")
    assert shared.run("checks.collectives.mean(world)").startswith("Not yet. Rank 0 returned None")


def test_the_next_check_names_the_check_that_was_interrupted(shared):
    shared.run("from helpers import World, checks\nworld = World(2)")
    shared.run("%%px\n" + INIT.format(timeout=20))
    waits = "    if rank == 0:\n        dist.recv(torch.zeros(1), src=1)\n    return 3.0"
    shared.run(f"%%px\ndef mean(numbers):\n{waits}")
    is_inside = shared.sees(still("world.where()[0].call == 'recv'"))
    shown = shared.run("checks.collectives.mean(world)", interrupt_when=is_inside)
    assert "rank 0 is inside a call that an interrupt does not reach" in shown
    shown = shared.run("checks.collectives.sharded_step(world)")
    assert shown.startswith(
        "Not yet. Rank 0 is still in the check of `mean`, which you interrupted. Run the lesson again, from"
    )
    shared.run("import time\nwhile world.where()[0].state == 'busy':\n    time.sleep(0.1)")
    shown = shared.run("checks.collectives.sharded_step(world)")
    assert "broken before this check called your answer, when you interrupted the check of `mean`: on rank" in shown
    shared.run("world.restart()")
    shared.run("%%px\n" + INIT.format(timeout=20))
    assert shared.run("checks.collectives.mean(world)").startswith("Not yet. Rank 0 has no function `mean`")


def test_after_an_interrupt_a_check_with_its_own_group_asks_to_wait(shared):
    shared.run("from helpers import World, checks\nworld = World(2)")
    shared.run("%%px\n" + INIT.format(timeout=20) + "world_size = size")
    shared.run("%%px\ndef my_total(group):\n    if rank == 0:\n        dist.barrier(group)\n    return 0.0")
    is_inside = shared.sees(still("world.where()[0].call == 'barrier'"))
    shared.run("checks.when_ranks_fail.my_total(world)", interrupt_when=is_inside)
    shown = shared.run("checks.when_ranks_fail.my_total(world)")
    assert shown == (
        "Not yet. Rank 0 is still in the check of `my_total`, which you interrupted. "
        "Wait until its call times out, then run this check again."
    )
    shared.run("while world.where()[0].state == 'busy': pass")
    shared.run("%%px\ndef my_total(group):\n    return 0.0")
    assert shared.run("checks.when_ranks_fail.my_total(world)").startswith("Not yet. Rank 0 returned 0.0")


def test_interrupt_of_a_call_that_is_stuck_names_the_line(shared):
    shared.run("from helpers import World\nworld = World(2)")
    shared.run("%%px\n" + INIT.format(timeout=20))
    is_inside = shared.sees(still("world.where()[0].call == 'barrier'"))
    shown = shared.run("ranks = 0\nworld.call('dist.barrier', targets=ranks)", interrupt_when=is_inside)
    assert "rank 0 is inside a call that an interrupt does not reach" in shown
    (row,) = [line for line in shown.splitlines() if line.split()[:2] == ["0", "busy"]]
    assert row.endswith("barrier     2  world.call('dist.barrier', targets=ranks)"), shown
    assert "rank 0 is still in the call that the interrupt did not end" in shared.run("world.call('dist.get_rank')")
    assert shared.run("world.call('dist.get_rank', targets=1)") == "1"


def test_a_rank_that_dies_in_a_cell_is_named(shared, tmp_path):
    shared.run("from helpers import World\nworld = World(2)")
    shared.run("%%px\n" + INIT.format(timeout=3))
    # What a rank has printed is on its way for a moment, and would be lost with it.
    go = str(tmp_path / "go")
    printed = "[world.view.client.metadata[message]['stdout'] for message in world._cells.messages()]"
    shared.when(f"{printed} == ['here\\n', 'here\\n']", f"open({go!r}, 'w').close()")
    wait = f"while not os.path.exists({go!r}):\n    time.sleep(0.01)"
    shown = shared.run(f"%%px\nprint('here', flush=True)\n{wait}\nif rank == 1:\n    os.abort()")
    assert "WorldError: Rank 1 has died (SIGABRT).\nCall world.restart() for working ranks." in shown
    assert "[stdout:0-1] \nhere" in shown
    assert "Rank 1 has died (SIGABRT)" in shared.run("%%px\nprint('not run')")
    said = "WorldError: Rank 1 has died (SIGABRT). Call world.restart() for working ranks."
    assert said in shared.run("world.call('dist.get_rank')")
    shared.run("world.restart()")
    for rank in "01":
        shown = shared.run(f"%%px --targets {rank}\nimport os\nprint(os.environ['RANK'])")
        assert shown == f"[stdout:{rank}] \n{rank}\n"


def test_what_a_rank_wrote_before_it_crashed_is_told(shared):
    shared.run("from helpers import World\nworld = World(2)")
    shown = shared.run("%%px --targets 1\nimport os\nos.write(2, b'what(): no\\n')\nos.abort()")
    assert "WorldError: Rank 1 has died (SIGABRT).\nCall world.restart() for working ranks.\n" in shown
    assert "Rank 1 wrote before it died:\nwhat(): no" in shown
    assert "what(): no" in shared.run("%%px\nprint('not run')")


def test_the_errors_of_the_others_are_told_with_a_death(shared):
    shared.run("from helpers import World\nworld = World(2)")
    shared.run("%%px\n" + INIT.format(timeout=3))
    shown = shared.run("%%px\nif rank == 1:\n    os.abort()\ndist.recv(torch.zeros(1), src=1)")
    assert "WorldError: Rank 1 has died (SIGABRT).\nRank 0 raised RuntimeError: " in shown


def test_where_finds_a_function_of_an_earlier_cell_and_a_thread_that_serves_a_caller(
    shared,
):
    shared.run("from helpers import World\nworld = World(2)")
    shared.run("%%px\n" + INIT.format(timeout=20))
    shared.run(
        "%%px\nimport torch.distributed.rpc as rpc\n\n"
        "def slow():\n    time.sleep(1000)\n\n"
        "rpc.init_rpc(f'rank{rank}', rank=rank, world_size=size)"
    )
    shared.run("%%px --noblock --targets 0\nrpc.rpc_sync('rank1', slow)")
    is_served = "(where := world.where())[0].call == 'rpc_sync' and where[1].line"
    table = shared.run(f"while not ({is_served}):\n    pass\nprint(where)").splitlines()
    assert table[1].split()[:2] == ["0", "busy"] and table[1].endswith("     2  rpc.rpc_sync('rank1', slow)")
    assert "rpc_sync  to=rank1, function=slow  " in table[1]
    assert table[2].split() == ["1", "serving", *"slow for rank 0".split(), "5", "time.sleep(1000)"]


def test_where_finds_a_rank_that_keeps_the_lock_of_python(shared):
    shared.run("from helpers import World\nworld = World(2)")
    shared.run("%%px --noblock --targets 1\nsum(range(10**15))")
    table = shared.run("while not (where := world.where())[1].line:\n    pass\nprint(where)").splitlines()
    assert table[1].split() == ["0", "idle"]
    assert table[2].split()[:2] == ["1", "busy"] and table[2].endswith("2  sum(range(10**15))")


def test_where_does_no_harm_to_ranks_whose_threads_come_and_go(world, tmp_path):
    assert_works(world)
    world.view.execute(
        """
        import torch.distributed.rpc as rpc

        def call():
            return rpc.rpc_sync(f"rank{rank ^ 1}", time.monotonic)

        rpc.init_rpc(f"rank{rank}", rank=rank, world_size=size)
        """
    )
    enough = tmp_path / "enough"
    answer = world.view.execute(
        f"""
        while not os.path.exists({str(enough)!r}):
            torch.futures.wait_all([rpc.rpc_async(f"rank{{rank ^ 1}}", call) for _ in range(8)])
        rpc.shutdown()
        """,
        block=False,
    )
    for _ in range(100):
        assert "dead" not in [state.state for state in world.where()]
    assert not answer.ready()
    enough.touch()
    answer.get(60)


BUSY = {
    "idle": "pass",
    "in Python": "%%px --noblock\nwhile True: pass",
    "in C, with the lock of Python": "%%px --noblock\nsum(range(10**15))",
    "stuck": "%%px --noblock\ndist.recv(torch.zeros(1), src=(rank + 1) % size)",
    "without an answer of its supervisor": "import os, signal\nos.kill(world._ranks._supervisor.pid, signal.SIGSTOP)",
}


@pytest.mark.parametrize("state", [at_night(state) if state in ("idle", "in Python") else state for state in BUSY])
def test_nothing_outlives_a_killed_kernel(notebook, state):
    directory = world_that_is(notebook, state)
    processes = notebook.processes()
    assert len(processes) >= 7
    os.kill(notebook.pid, signal.SIGKILL)
    assert left_after(processes, SECONDS_TO_VANISH) == []
    assert wait_until(lambda: not os.path.exists(os.path.dirname(directory)), SECONDS_TO_VANISH)


ENDS = {
    "restart": lambda manager: manager.restart_kernel(now=True),
    "polite restart": lambda manager: manager.restart_kernel(now=False),
    "shutdown, as nbval does it": lambda manager: manager.shutdown_kernel(now=True),
}


@pytest.mark.parametrize("end", [at_night(end) if end == "restart" else end for end in ENDS])
def test_nothing_outlives_the_end_of_a_kernel_in_a_busy_cell(notebook, end):
    world_that_is(notebook, "stuck")
    notebook.start("%%px\nprint('queued')")
    started = notebook.processes()[1:]
    ENDS[end](notebook.manager)
    assert left_after(started, SECONDS_TO_VANISH) == []


def test_nothing_outlives_a_kernel_that_ends_by_itself(notebook):
    world_that_is(notebook, "idle")
    processes = notebook.processes()
    notebook.start("exit()")
    assert left_after(processes, SECONDS_TO_VANISH) == []


# What a rank has started: a process in a session of its own, and one whose parent has ended.
START_OTHERS = """
import subprocess
own_session = subprocess.Popen(["sleep", "1000"], start_new_session=True)
orphan = subprocess.run(["sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $!"], capture_output=True, text=True)
others = [own_session.pid, int(orphan.stdout)]
"""


@pytest.mark.parametrize("end", ["restart", "stop"])
def test_nothing_that_a_rank_has_started_outlives_it(end):
    world = World(2)
    try:
        world.view.execute(START_OTHERS)
        others = [psutil.Process(pid) for pids in world.view["others"] for pid in pids]
        assert len(others) == 4
        getattr(world, end)()
        assert left_after(others, SECONDS_TO_VANISH) == []
    finally:
        world.stop()


def test_nothing_that_a_rank_has_started_outlives_a_killed_kernel(notebook):
    directory = world_that_is(notebook, "idle")
    notebook.run("%%px\n" + START_OTHERS)
    pids = notebook.run("print(*sum(world.view['others'], []))").split()
    others = [psutil.Process(int(pid)) for pid in pids]
    assert len(others) == 4
    os.killpg(notebook.pid, signal.SIGKILL)  # as Jupyter does it: its whole process group
    assert left_after(others, SECONDS_TO_VANISH) == []
    assert wait_until(lambda: not os.path.exists(os.path.dirname(directory)), SECONDS_TO_VANISH)


def test_no_file_is_left_when_a_kernel_is_killed_that_had_stopped_its_world(notebook):
    directory = world_that_is(notebook, "idle")
    notebook.run("world.stop()")
    assert not os.path.exists(directory) and os.path.exists(os.path.dirname(directory))
    os.killpg(notebook.pid, signal.SIGKILL)
    assert wait_until(lambda: not os.path.exists(os.path.dirname(directory)), SECONDS_TO_VANISH)


@pytest.mark.parametrize("moment", [at_night(0.05), 0.3, at_night(0.8)])
@pytest.mark.parametrize("call", ["World(2)", "world.restart()", "world.stop()"])
def test_an_interrupt_of(notebook, call, moment):
    notebook.run("from helpers import World\nworld = World(2)" if "world." in call else "from helpers import World")
    cell = f"world = {call}" if call.startswith("World") else call
    has_come = notebook.sees(f"'begin' in globals() and time.monotonic() > begin + {moment}")
    # The moment may come after the call.
    notebook.run(f"import time\nbegin = time.monotonic()\n{cell}\ntime.sleep(2)", interrupt_when=has_come)
    notebook.run("try:\n    world.stop()\nexcept NameError:\n    pass")
    shown = notebook.run("world = World(2)\n%px print('run')")
    assert shown.endswith("[stdout:0-1] \nrun\n"), shown
    notebook.run("world.stop()")
    assert only_multiprocessing_is_left(notebook)


def only_multiprocessing_is_left(notebook):
    """Wait until a kernel has no process but its fork server and its resource tracker; return whether that came."""
    return wait_until(lambda: len(notebook.processes()) <= 3, SECONDS_TO_VANISH)


def world_that_is(notebook, state):
    """Start a world of two ranks in the state; return its private folder."""
    notebook.run("from helpers import World\nworld = World(2)")
    notebook.run("%%px\n" + INIT.format(timeout=30))
    notebook.run(BUSY[state])
    if BUSY[state].startswith("%%px"):
        notebook.run("while not all(state.line for state in world.where()):\n    pass")
    return notebook.run("print(world._directory)").strip()


@pytest.mark.nightly
def test_six_worlds_at_once():
    script = f"""
from helpers import World
world = World(2)
world.view.execute({INIT.format(timeout=30) + SUM!r})
print(world.view["total"])
world.stop()
"""
    worlds = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(6)
    ]
    for process in worlds:
        shown, errors = process.communicate(timeout=300)  # on a busy machine they take 100 s
        assert process.returncode == 0, errors
        assert shown.splitlines()[-1].endswith("[tensor([3.]), tensor([3.])]")
    assert not [p for p in psutil.process_iter(["ppid"]) if p.ppid() in [process.pid for process in worlds]]
