"""What the check of `ring_shift` says after something else has broken the group, and of an answer that does not end."""

import re

import pytest
from answer_files import code_of, setup_of
from answers import says

from helpers import checks
from helpers.checks import judging
from helpers.checks.judging import RESTART, TIMEOUT_ERROR

SETUP = setup_of("point_to_point")
SOLUTION = code_of("point_to_point.ring_shift", "solution")
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
    assert TIMEOUT_ERROR.search(error)


@pytest.mark.nightly
def test_a_group_is_still_good_after_an_error_that_mentions_gloo(world):
    answer = code_of("point_to_point.ring_shift", "an error that mentions gloo is no deadlock")
    for _ in range(2):
        assert says(checks.point_to_point.ring_shift, world, answer) == (
            "Not yet. Rank 0 raised RuntimeError: gloo cannot do this before the timeout"
        )


FORGOTTEN = {
    "dist.isend(tensor, right); dist.recv(received, left)": "send",
    "work = dist.isend(tensor, right); dist.recv(received, left)": "send",
    "works = dist.isend(tensor, right), dist.irecv(received, left)": "send",
    "dist.irecv(received, left); dist.send(tensor, right)": "receive",
    "work = dist.irecv(received, left); dist.isend(tensor, right).wait()": "receive",
}


@pytest.mark.nightly
@pytest.mark.parametrize("body", FORGOTTEN)
def test_a_forgotten_wait_is_named_and_spoils_the_group(broken_world, body):
    answer = f"""
        def ring_shift(tensor):
            received = torch.zeros_like(tensor)
            {body}
            return received
    """
    said = says(checks.point_to_point.ring_shift, broken_world, answer)
    name = FORGOTTEN[body]
    assert said in [never_waited(rank, name) for rank in range(4)]
    assert says(checks.point_to_point.ring_shift, broken_world, SOLUTION) == (
        f"Not yet. An earlier attempt broke the process group. {RESTART}"
    )


def never_waited(rank, name):
    peer = {"send": f"to rank {(rank + 1) % 4}", "receive": f"from rank {(rank - 1) % 4}"}[name]
    work = {"send": "isend", "receive": "irecv"}[name]
    return (
        f"Not yet. Rank {rank} never waited for its {name} {peer}, so that message may be lost. "
        f"Keep the work object that {work} returns, and call its wait(). {RESTART}"
    )


@pytest.mark.nightly
def test_a_group_that_was_broken_before(broken_world):
    receive = "try:\n    rank == 1 and dist.recv(torch.zeros(1), src=0)\nexcept RuntimeError:\n    pass"
    broken_world.view.execute(receive)
    said = says(checks.point_to_point.ring_shift, broken_world, SOLUTION)
    begin = "Not yet. The process group was broken before this check called your answer, by an earlier cell"
    assert said.startswith(begin)
    assert said.endswith(RESTART) and "a barrier raises RuntimeError: " in said


@pytest.mark.nightly
def test_an_answer_that_does_not_end_shows_where_the_ranks_are(broken_world, monkeypatch):
    monkeypatch.setattr(judging, "SECONDS_TO_ANSWER", 2)
    answer = """
        import time
        def ring_shift(tensor):
            while rank == 1:
                time.sleep(0.1)
    """
    said = says(checks.point_to_point.ring_shift, broken_world, answer)
    assert said.startswith("Not yet. `ring_shift` did not end on all ranks within 2 s; world.where() shows")
    assert re.search(r"^ +1 +busy +\d\.\d s +4$", said, re.MULTILINE) and said.endswith(RESTART), said
