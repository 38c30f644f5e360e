"""What the checks of 20_rpc_threads_and_failures do after an answer was right, or has used up the ranks."""

from answer_files import code_of, setup_of
from answers import says

from helpers import checks
from helpers.checks.judging import RESTART

SETUP = setup_of("rpc_threads_and_failures")


def test_my_ask_is_accepted(world):
    says(checks.rpc_threads_and_failures.my_ask, world, code_of("rpc_threads_and_failures.my_ask", "solution"))
    assert "my_ask" in world.accepted


def test_threads_that_were_starved_are_named(broken_world):
    answer = code_of("rpc_threads_and_failures.Batcher", "after threads were starved")
    says(checks.rpc_threads_and_failures.Batcher, broken_world, answer)
    assert repr(checks.rpc_threads_and_failures.Batcher(broken_world)) == f"Not yet. Rank 1 is serving. {RESTART}"


def test_processes_that_cannot_shut_down_together_are_named(broken_world):
    my_leave = checks.rpc_threads_and_failures.my_leave
    says(my_leave, broken_world, code_of("rpc_threads_and_failures.my_leave", "does not ask"))
    for _ in range(2):
        said = says(my_leave, broken_world, code_of("rpc_threads_and_failures.my_leave", "solution"))
        begin = "Not yet. Rank 0 raised RuntimeError: these processes can no longer shut down together, "
        assert said.startswith(begin)
        assert "Call fresh_ranks()" in said


def test_a_rank_that_a_check_has_killed_is_named(broken_world):
    answer = code_of("rpc_threads_and_failures.ask_any", "solution")
    says(checks.rpc_threads_and_failures.ask_any, broken_world, answer)
    assert repr(checks.rpc_threads_and_failures.Batcher(broken_world)) == f"Not yet. Rank 3 is dead. {RESTART}"
