"""The checks of 02_point_to_point: each accepts the solution, and says what is wrong with other answers."""

import re
import textwrap

import pytest
from answers import cell

from helpers import World, checks
from helpers.checks import judging
from helpers.checks.judging import CUT_OFF, RESTART


def skeleton(function):
    return cell("02_point_to_point.ipynb", f"def {function}(")


def solution(function):
    return cell("solutions/02_point_to_point.ipynb", f"def {function}(")


# A shorter timeout than the learner's: a deadlock takes as long.
SETUP = cell("02_point_to_point.ipynb", "init_process_group(").replace("seconds=10", "seconds=4")


@pytest.fixture
def world(world):
    """The world of this module, with clean ranks when the test before has spoilt them."""
    world.spoilt = False
    yield world
    if world.spoilt:
        world.restart()
        world.view.execute(SETUP, silent=True)


def says(check, world, answer):
    """Define an answer on every rank, and return what the check says; an answer that spoils the ranks is noted."""
    world.view.execute(textwrap.dedent(answer))
    verdict = repr(check(world))
    world.spoilt = RESTART in verdict
    return verdict


# ---------------------------------------------------------------- ring_shift


def test_ring_shift_solution(world):
    assert says(checks.point_to_point.ring_shift, world, solution("ring_shift")) == (
        "Solved. Every rank returned its left neighbour's tensor, and sent 64 bytes."
    )


def test_ring_shift_skeleton(world):
    assert says(checks.point_to_point.ring_shift, world, skeleton("ring_shift")) == (
        "Not yet. Rank 0 holds 1.0, expected 4.0."
    )


def test_ring_shift_that_all_begin_with_send(world):
    answer = """
        def ring_shift(tensor):
            received = torch.empty_like(tensor)
            dist.send(tensor, dst=right)
            dist.recv(received, src=left)
            return received
    """
    assert says(checks.point_to_point.ring_shift, world, answer) == (
        "Not yet. Deadlock: the group's timeout ended the wait on these ranks: 0 (in a send to rank 1), "
        f"1 (in a send to rank 2), 2 (in a send to rank 3), 3 (in a send to rank 0). {RESTART}"
    )


def test_ring_shift_to_the_wrong_side(world):
    answer = """
        def ring_shift(tensor):
            received = torch.empty_like(tensor)
            work = dist.isend(tensor, dst=left)
            dist.recv(received, src=right)
            work.wait()
            return received
    """
    assert says(checks.point_to_point.ring_shift, world, answer) == "Not yet. Rank 0 holds 2.0, expected 4.0."


def test_ring_shift_with_a_message_too_many(world):
    answer = """
        def ring_shift(tensor):
            received = torch.empty_like(tensor)
            header = torch.zeros(8)
            for outgoing, incoming in ((header, header.clone()), (tensor, received)):
                work = dist.isend(outgoing, dst=right)
                dist.recv(incoming, src=left)
                work.wait()
            return received
    """
    assert says(checks.point_to_point.ring_shift, world, answer) == "Not yet. Rank 0 sent 96 bytes, expected 64."


def test_ring_shift_in_two_halves(world):
    answer = """
        def ring_shift(tensor):
            received = torch.empty_like(tensor)
            for half in (slice(8), slice(8, 16)):
                work = dist.isend(tensor[half], dst=right)
                dist.recv(received[half], src=left)
                work.wait()
            return received
    """
    assert says(checks.point_to_point.ring_shift, world, answer) == "Not yet. Rank 0 sent 2 messages, expected 1."


def test_ring_shift_by_a_collective(world):
    answer = """
        def ring_shift(tensor):
            tensors = [torch.empty_like(tensor) for _ in range(n)]
            dist.all_gather(tensors, tensor)
            return tensors[left]
    """
    assert says(checks.point_to_point.ring_shift, world, answer) == "Not yet. Rank 0 sent 0 bytes, expected 64."


def test_an_answer_that_raises(world):
    answer = """
        def ring_shift(tensor):
            raise ValueError("no such neighbour") if rank == 2 else KeyError("ring_shift")
    """
    assert says(checks.point_to_point.ring_shift, world, answer) == "Not yet. Rank 0 raised KeyError: 'ring_shift'"


def test_an_error_that_mentions_gloo_is_no_deadlock(world):
    answer = """
        def ring_shift(tensor):
            raise RuntimeError("gloo cannot do this before the timeout")
    """
    says_so = "Not yet. Rank 0 raised RuntimeError: gloo cannot do this before the timeout"
    assert says(checks.point_to_point.ring_shift, world, answer) == says_so
    assert says(checks.point_to_point.ring_shift, world, answer) == says_so  # and the group is still a good one


GLOO = "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] "


@pytest.mark.parametrize(
    "error",
    [
        f"RuntimeError: {GLOO}Timed out waiting 2000ms for recv operation to complete",
        f"RuntimeError: {GLOO}Connection closed by peer [127.0.0.1]:1927. This is typically caused by a remote worker",
        f"RuntimeError: {GLOO}Read error [127.0.0.1]:41684: Connection reset by peer.",
        "RuntimeError: Application timeout caused pair closure",
        f"RuntimeError: Gloo connectFullMesh failed with {GLOO}Connect timeout [none]",
        f"RuntimeError: [Rank 0]: Rank 2 failed to pass monitoredBarrier in 1000 ms\n Original exception: \n{GLOO}"
        "Timed out waiting 996ms for recv operation to complete",
        "DistStoreError: wait timeout after 2000ms, keys: /default_pg/0//1//cpu//0/2",
    ],
)
def test_the_texts_of_a_rank_that_was_cut_off(error):
    assert CUT_OFF.search(error)


def test_an_answer_that_raises_while_the_others_wait(world):
    answer = """
        def ring_shift(tensor):
            if rank == 2:
                raise ValueError("no such neighbour")
            dist.recv(tensor, src=left)
    """
    assert (
        says(checks.point_to_point.ring_shift, world, answer)
        == f"Not yet. Rank 2 raised ValueError: no such neighbour\n{RESTART}"
    )


def test_an_answer_that_is_not_there(world):
    assert says(checks.point_to_point.ring_shift, world, "globals().pop('ring_shift', None)") == (
        "Not yet. Rank 0 has no function `ring_shift`: run the cell that defines it, then this check."
    )


def test_an_answer_that_returns_something_else(world):
    assert says(checks.point_to_point.ring_shift, world, "def ring_shift(tensor):\n    return dist.group.WORLD") == (
        "Not yet. Rank 0 holds a ProcessGroup, expected 4.0."
    )


def test_an_answer_that_ends_the_process(world):
    answer = """
        def ring_shift(tensor):
            work = dist.isend(tensor, dst=right)
            dist.recv(torch.empty(1) if rank == 1 else tensor, src=left)
            work.wait()
    """
    assert says(checks.point_to_point.ring_shift, world, answer) == f"Not yet. Rank 1 is dead. {RESTART}"


def test_a_message_that_nobody_received(world):
    answer = """
        def ring_shift(tensor):
            received = torch.empty_like(tensor)
            work = dist.isend(tensor, dst=right)
            dist.recv(received, src=left)
            work.wait()
            if rank == 3:
                dist.isend(tensor, dst=1)
            return received
    """
    assert says(checks.point_to_point.ring_shift, world, answer) == never_waited(3, "send", "to rank 1")


def never_waited(rank, name, peer):
    work = {"send": "isend", "receive": "irecv"}[name]
    return (
        f"Not yet. Rank {rank} never waited for its {name} {peer}, so that message may be lost. "
        f"Keep the work object that {work} returns, and call its wait(). {RESTART}"
    )


FORGOTTEN = {
    "dist.isend(tensor, right); dist.recv(received, left)": "send",
    "work = dist.isend(tensor, right); dist.recv(received, left)": "send",
    "works = dist.isend(tensor, right), dist.irecv(received, left)": "send",
    "dist.irecv(received, left); dist.send(tensor, right)": "receive",
    "work = dist.irecv(received, left); dist.isend(tensor, right).wait()": "receive",
}


@pytest.mark.parametrize("body", FORGOTTEN)
def test_a_forgotten_wait_is_named_and_spoils_the_group(world, body):
    answer = f"""
        def ring_shift(tensor):
            received = torch.zeros_like(tensor)
            {body}
            return received
    """
    said = says(checks.point_to_point.ring_shift, world, answer)
    name = FORGOTTEN[body]
    peer = {"send": "to rank {right}", "receive": "from rank {left}"}[name]
    assert said in [
        never_waited(rank, name, peer.format(left=(rank - 1) % 4, right=(rank + 1) % 4)) for rank in range(4)
    ]
    assert says(checks.point_to_point.ring_shift, world, solution("ring_shift")) == (
        f"Not yet. An earlier attempt has broken the process group. {RESTART}"
    )


def test_a_message_that_would_have_been_waited_for(world):
    # Rank 2 is the one that does not send: the others have kept their work objects, and are not to blame.
    answer = """
        def ring_shift(tensor):
            received = torch.zeros_like(tensor)
            work = dist.isend(tensor, right) if rank != 2 else None
            dist.recv(received, left)
            if work:
                work.wait()
            return received
    """
    said = says(checks.point_to_point.ring_shift, world, answer)
    assert said.startswith("Not yet. Deadlock: ") and "3 (in a recv from rank 2)" in said, said


def test_a_group_that_was_broken_before(world):
    world.view.execute("try:\n    rank == 1 and dist.recv(torch.zeros(1), src=0)\nexcept RuntimeError:\n    pass")
    said = says(checks.point_to_point.ring_shift, world, solution("ring_shift"))
    assert said.startswith("Not yet. The process group was broken before this check called your answer, by a cell")
    assert said.endswith(RESTART) and "a barrier raises RuntimeError: " in said


def test_an_answer_that_does_not_end_shows_where_the_ranks_are(world, monkeypatch):
    monkeypatch.setattr(judging, "SECONDS_TO_ANSWER", 2)
    answer = """
        import time
        def ring_shift(tensor):
            while rank == 1:
                time.sleep(0.1)
    """
    said = says(checks.point_to_point.ring_shift, world, answer)
    assert said.startswith("Not yet. ring_shift has not ended within 2 s on all ranks; world.where() shows")
    assert re.search(r"^ +1 +busy +4$", said, re.MULTILINE) and said.endswith(RESTART), said


# ---------------------------------------------------------------- gather_by_hand


def test_gather_solution(world):
    assert says(checks.point_to_point.gather, world, solution("gather")) == (
        "Solved. Rank 0 returned the tensors of all ranks, after 3 messages."
    )


def test_gather_skeleton(world):
    assert says(checks.point_to_point.gather, world, skeleton("gather")) == (
        "Not yet. Rank 0 returned a list of 1, expected a list of 4 tensors."
    )


def test_gather_by_irecv(world):
    answer = """
        def gather(tensor):
            if rank > 0:
                dist.isend(tensor, dst=0).wait()
                return
            tensors = [tensor.clone() for _ in range(n)]
            works = [dist.irecv(tensors[source], src=source) for source in range(1, n)]
            for work in works:
                work.wait()
            return tensors
    """
    assert says(checks.point_to_point.gather, world, answer).startswith("Solved. ")


def test_gather_in_the_order_of_arrival(world):
    answer = """
        def gather(tensor):
            if rank > 0:
                dist.send(tensor, dst=0)
                return None
            tensors = [tensor] + [torch.empty_like(tensor) for _ in range(1, n)]
            for received in tensors[1:]:
                dist.recv(received)
            return tensors
    """
    assert says(checks.point_to_point.gather, world, answer) == (
        "Not yet. Rank 0 returned 4.0 in place 1 of its list, expected 2.0."
    )


def test_gather_into_one_tensor(world):
    answer = """
        def gather(tensor):
            if rank > 0:
                dist.send(tensor, dst=0)
                return None
            received, tensors = torch.empty_like(tensor), [tensor]
            for source in range(1, n):
                dist.recv(received, src=source)
                tensors.append(received)
            return tensors
    """
    assert says(checks.point_to_point.gather, world, answer) == (
        "Not yet. Rank 0 returned 4.0 in place 1 of its list, expected 2.0."
    )


def test_gather_of_a_message_to_oneself(world):
    answer = """
        def gather(tensor):
            tensors = [torch.empty_like(tensor) for _ in range(n)]
            dist.gather(tensor, tensors if rank == 0 else None)
            return tensors
    """
    assert says(checks.point_to_point.gather, world, answer).startswith(
        "Not yet. Rank 1 returned a list of 4, expected None"
    )


def test_gather_everywhere(world):
    answer = """
        def gather(tensor):
            tensors = [tensor if source == rank else torch.empty_like(tensor) for source in range(n)]
            others = [other for other in range(n) if other != rank]
            works = [dist.isend(tensor, other) for other in others]
            for work in works + [dist.irecv(tensors[other], other) for other in others]:
                work.wait()
            return tensors if rank == 0 else None
    """
    assert says(checks.point_to_point.gather, world, answer) == "Not yet. Rank 0 sent 192 bytes, expected 0."


# ---------------------------------------------------------------- tree_broadcast


def test_tree_solution(world):
    assert says(checks.point_to_point.tree_broadcast, world, solution("tree_broadcast")) == (
        "Solved. Every rank returned the tensor of rank 0, after 3 messages in 2 rounds."
    )


def test_tree_skeleton(world):
    assert says(checks.point_to_point.tree_broadcast, world, skeleton("tree_broadcast")) == (
        "Not yet. Rank 1 holds 2.0, expected 1.0."
    )


@pytest.mark.parametrize(
    "body",
    [
        "for k in range((n - 1).bit_length()):\n"
        "    if rank < 2**k and rank + 2**k < n:\n        dist.isend(tensor, dst=rank + 2**k).wait()\n"
        "    elif 2**k <= rank < 2 ** (k + 1):\n        dist.recv(tensor, src=rank - 2**k)\n"
        "return tensor",
        "mine = tensor.clone()\nif rank > 0:\n    dist.recv(mine, src=rank - 2 ** (rank.bit_length() - 1))\n"
        "k = rank.bit_length()\nwhile rank + 2**k < n:\n    dist.send(mine, dst=rank + 2**k)\n    k += 1\n"
        "return mine",
    ],
    ids=["by the power", "receive, then pass on"],
)
def test_tree_in_other_styles(world, body):
    answer = "def tree_broadcast(tensor):\n" + textwrap.indent(body, "    ")
    assert says(checks.point_to_point.tree_broadcast, world, answer).startswith("Solved. ")


def test_tree_that_is_a_star(world):
    answer = """
        def tree_broadcast(tensor):
            if rank > 0:
                dist.recv(tensor, src=0)
            else:
                for other in range(1, n):
                    dist.send(tensor, dst=other)
            return tensor
    """
    assert says(checks.point_to_point.tree_broadcast, world, answer) == (
        "Not yet. Rank 3 received the tensor in round 3, expected round 2 at the latest."
    )


def test_tree_that_is_a_chain(world):
    answer = """
        def tree_broadcast(tensor):
            if rank > 0:
                dist.recv(tensor, src=left)
            if rank < n - 1:
                dist.send(tensor, dst=right)
            return tensor
    """
    assert says(checks.point_to_point.tree_broadcast, world, answer) == (
        "Not yet. Rank 3 received the tensor in round 3, expected round 2 at the latest."
    )


def test_tree_with_messages_to_those_that_have_the_tensor(world):
    answer = """
        def tree_broadcast(tensor):
            reach = 1
            while reach < n:
                work = dist.isend(tensor.clone(), dst=rank ^ reach)
                received = torch.empty_like(tensor)
                dist.recv(received, src=rank ^ reach)
                work.wait()
                tensor = torch.minimum(tensor, received)
                reach *= 2
            return tensor
    """
    assert (
        says(checks.point_to_point.tree_broadcast, world, answer) == "Not yet. The ranks sent 8 messages, expected 3."
    )


def test_tree_of_ranks_that_fill_in_what_they_know(world):
    answer = """
        def tree_broadcast(tensor):
            if rank in (1, 2):
                dist.send(tensor, dst=3)
            if rank == 3:
                dist.recv(tensor, src=1)
                dist.recv(tensor, src=2)
                dist.send(tensor, dst=2)
            if rank == 2:
                dist.recv(tensor, src=3)
            return tensor.fill_(1)
    """
    assert says(checks.point_to_point.tree_broadcast, world, answer) == (
        "Not yet. No message from rank 0 reached rank 1, either directly or through other ranks."
    )


# ---------------------------------------------------------------- overlap


def test_overlap_solution(world):
    assert says(checks.point_to_point.overlap, world, solution("overlap")) == (
        "Solved. Every rank computed while its messages were under way."
    )


def test_overlap_skeleton(world):
    world.view.execute(skeleton("ring_shift"))
    assert says(checks.point_to_point.overlap, world, skeleton("overlap")) == "Not yet. Rank 0 holds 1.0, expected 4.0."


def test_overlap_skeleton_with_the_first_exercise_solved(world):
    world.view.execute(solution("ring_shift"))
    assert says(checks.point_to_point.overlap, world, skeleton("overlap")) == (
        "Not yet. Rank 0 waited for its send before the computation ended, expected the wait afterwards."
    )


OVERLAP = """
    def overlap(tensor, compute):
        received = torch.empty_like(tensor)
        works = [dist.isend(tensor, right), dist.irecv(received, left)]
        {body}
        return result, received
"""


@pytest.mark.parametrize(
    "body",
    [
        "received = torch.empty_like(tensor)\nworks = [dist.irecv(received, left), dist.isend(tensor, right)]\n"
        "result = compute()\n[work.wait() for work in works]\nreturn result, received",
        "sent = dist.isend(tensor, right)\nreceived = torch.zeros_like(tensor)\narrived = dist.irecv(received, left)\n"
        "result = compute()\narrived.wait()\nsent.wait()\nreturn (result, received)",
    ],
    ids=["receive first", "send first"],
)
def test_overlap_in_other_styles(world, body):
    answer = "def overlap(tensor, compute):\n" + textwrap.indent(body, "    ")
    assert says(checks.point_to_point.overlap, world, answer).startswith("Solved. ")


def test_overlap_that_waits_first(world):
    body = "works[1].wait(); works[0].wait(); result = compute()"
    assert says(checks.point_to_point.overlap, world, OVERLAP.format(body=body)) == (
        "Not yet. Rank 0 waited for its send before the computation ended, expected the wait afterwards."
    )


def test_overlap_that_waits_for_the_receive_first(world):
    body = "works[1].wait(); result = compute(); works[0].wait()"
    assert says(checks.point_to_point.overlap, world, OVERLAP.format(body=body)) == (
        "Not yet. Rank 0 waited for its receive before the computation ended, expected the wait afterwards."
    )


def test_overlap_that_computes_first(world):
    answer = """
        def overlap(tensor, compute):
            result = compute()
            received = torch.empty_like(tensor)
            works = [dist.isend(tensor, right), dist.irecv(received, left)]
            for work in works:
                work.wait()
            return result, received
    """
    assert says(checks.point_to_point.overlap, world, answer) == (
        "Not yet. Rank 0 began the computation before it posted its send, expected the send first."
    )


def test_overlap_that_computes_twice(world):
    body = "compute(); result = compute(); works[1].wait(); works[0].wait()"
    assert says(checks.point_to_point.overlap, world, OVERLAP.format(body=body)) == (
        "Not yet. Rank 0 called `compute()` 2 times, expected 1 time."
    )


def test_overlap_that_knows_the_result(world):
    body = "result = rank + 1; works[1].wait(); works[0].wait()"
    assert says(checks.point_to_point.overlap, world, OVERLAP.format(body=body)) == (
        "Not yet. Rank 0 called `compute()` 0 times, expected 1 time."
    )


def test_overlap_that_never_waits_for_the_send(world):
    body = "result = compute(); works[1].wait(); dist.barrier()"
    assert says(checks.point_to_point.overlap, world, OVERLAP.format(body=body)) == never_waited(0, "send", "to rank 1")


def test_overlap_in_the_wrong_order_of_results(world):
    answer = """
        def overlap(tensor, compute):
            return tensor, compute()
    """
    assert says(checks.point_to_point.overlap, world, answer) == (
        "Not yet. Rank 0 returned a tensor of shape [16] first, expected 1.0, the result of `compute()`."
    )


# ---------------------------------------------------------------- checks.point_to_point.my_swap


@pytest.mark.parametrize("way", ["by_parity", "by_isend", "by_batch"])
def test_the_lessons_own_swaps(world, way):
    source = cell("02_point_to_point.ipynb", "def by_parity(")
    assert says(checks.point_to_point.my_swap, world, f"{source}\nmy_swap = {way}") == (
        "Solved. Each of the two ranks received the tensor of the other rank, without a deadlock."
    )


def test_a_swap_by_two_works(world):
    answer = """
        def my_swap(mine, received):
            receiving = dist.irecv(received, 1 - rank)
            sending = dist.isend(mine, 1 - rank)
            sending.wait()
            receiving.wait()
    """
    assert says(checks.point_to_point.my_swap, world, answer).startswith("Solved. ")


def test_swap_skeleton(world):
    assert says(checks.point_to_point.my_swap, world, skeleton("my_swap")) == "Not yet. Rank 0 holds 0.0, expected 2.0."


def test_a_swap_that_both_begin_with_send(world):
    answer = """
        def my_swap(mine, received):
            dist.send(mine, 1 - rank)
            dist.recv(received, 1 - rank)
    """
    assert says(checks.point_to_point.my_swap, world, answer).startswith("Not yet. Deadlock")


def test_a_swap_that_forgets_to_wait(world):
    answer = """
        def my_swap(mine, received):
            dist.isend(mine, 1 - rank)
            dist.irecv(received, 1 - rank)
    """
    assert says(checks.point_to_point.my_swap, world, answer).startswith("Not yet. Rank 0 never waited")


def test_a_swap_of_one_half(world):
    answer = """
        def my_swap(mine, received):
            if rank == 0:
                dist.send(mine, 1)
            else:
                dist.recv(received, 0)
    """
    assert says(checks.point_to_point.my_swap, world, answer) == "Not yet. Rank 0 holds 0.0, expected 2.0."


def test_a_swap_in_two_halves(world):
    answer = """
        def my_swap(mine, received):
            for half in (slice(0, 8), slice(8, 16)):
                work = dist.isend(mine[half], 1 - rank)
                dist.recv(received[half], 1 - rank)
                work.wait()
    """
    assert says(checks.point_to_point.my_swap, world, answer) == "Not yet. Rank 0 sent 2 messages, expected 1."


# ---------------------------------------------------------------- other numbers of ranks


@pytest.mark.nightly
@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_the_solutions_in_other_worlds(size):
    world = World(size)
    try:
        world.view.execute(SETUP, silent=True)
        for function, check in [
            ("ring_shift", checks.point_to_point.ring_shift),
            ("gather", checks.point_to_point.gather),
            ("tree_broadcast", checks.point_to_point.tree_broadcast),
            ("overlap", checks.point_to_point.overlap),
        ]:
            assert says(check, world, solution(function)).startswith("Solved. ")
            assert says(check, world, skeleton(function)).startswith("Not yet. ")
    finally:
        world.stop()
