"""The checks of 29_two_hosts: each accepts the solution, and says what is wrong with other answers."""

import re
from functools import partial

import pytest
from answers import cell, says

import helpers.ranks.local
import helpers.world
from helpers import World, checks
from helpers.ranks.supervisor import Supervisor


def skeleton(function):
    return cell("29_two_hosts.ipynb", f"def {function}(")


def solution(function):
    return cell("solutions/29_two_hosts.ipynb", f"def {function}(")


SETUP = cell("solutions/29_two_hosts.ipynb", "init_process_group(")


@pytest.fixture
def world(worlds):
    """Four ranks on two hosts, the same for all tests but the last."""
    if not worlds or helpers.world.current() is not worlds[-1]:
        worlds.append(World(4, hosts=2))
        worlds[-1].view.execute(SETUP, silent=True)
    return worlds[-1]


@pytest.fixture
def cabled_world(world):
    if not world.has_cables:
        pytest.skip(repr(world).splitlines()[0])
    return world


# ---------------------------------------------------------------- two levels


def test_two_levels_solution(cabled_world):
    assert says(checks.two_hosts.my_two_level_all_reduce, cabled_world, solution("my_two_level_all_reduce")) == (
        "Solved. Every rank holds the sum, and 1.00 tensors have left each host."
    )


def test_two_levels_skeleton(cabled_world):
    said = says(checks.two_hosts.my_two_level_all_reduce, cabled_world, skeleton("my_two_level_all_reduce"))
    assert re.fullmatch(r"Not yet. The sum is right. 1.5\d tensors have left host0, expected 1.00.", said)


RIGHT_TWO_LEVELS = {
    "shards": """
        def my_two_level_all_reduce(tensor):
            shard = torch.empty(len(tensor) // m)
            dist.reduce_scatter_tensor(shard, tensor, group=inside)
            dist.all_reduce(shard, group=across)
            dist.all_gather_into_tensor(tensor, shard, group=inside)
        """,
    "everybody adds up inside": """
        def my_two_level_all_reduce(tensor):
            dist.all_reduce(tensor, group=inside)
            if rank % m == 0:
                dist.all_reduce(tensor, group=across)
            dist.broadcast(tensor, group_src=0, group=inside)
        """,
    "messages across": """
        def my_two_level_all_reduce(tensor):
            first = rank // m * m
            dist.reduce(tensor, dst=first, group=inside)
            if rank == first:
                other = torch.empty_like(tensor)
                work = dist.irecv(other, (first + m) % n)
                dist.send(tensor, (first + m) % n)
                work.wait()
                tensor += other
            dist.broadcast(tensor, src=first, group=inside)
        """,
    "by the last ranks": """
        def my_two_level_all_reduce(tensor):
            last = rank // m * m + m - 1
            dist.reduce(tensor, last, group=inside)
            if rank == last:
                tensor.copy_(sum_across(tensor))
            dist.broadcast(tensor, last, group=inside)

        def sum_across(tensor):
            parts = [torch.empty_like(tensor) for _ in range(n // m)]
            dist.all_gather(parts, tensor, group=across)
            return torch.stack(parts).sum(0)
        """,
}


@pytest.mark.parametrize("answer", RIGHT_TWO_LEVELS.values(), ids=RIGHT_TWO_LEVELS)
def test_two_levels_in_another_way(cabled_world, answer):
    assert says(checks.two_hosts.my_two_level_all_reduce, cabled_world, answer).startswith("Solved. ")


@pytest.mark.parametrize(
    ("right", "wrong", "verdict"),
    [
        pytest.param("    if rank == first:\n        dist", "    if True:\n        dist", " 2.0", id="all across"),
        pytest.param("dist.all_reduce(tensor, group=across)", "pass", "Rank 0 holds 3, expected", id="nothing across"),
        pytest.param("    dist.broadcast(tensor, src=first, group=inside)", "", "Rank 1 holds", id="no broadcast"),
        pytest.param("    dist.reduce(tensor, dst=first, group=inside)\n", "", "Rank 0 holds 4", id="no reduce"),
        pytest.param("src=first", "src=0", "Rank 2 raised ValueError", id="rank 0 for everybody"),
    ],
)
def test_two_levels_that_are_wrong(cabled_world, right, wrong, verdict):
    answer = solution("my_two_level_all_reduce")
    assert answer.count(right) == 1
    found = says(checks.two_hosts.my_two_level_all_reduce, cabled_world, answer.replace(right, wrong))
    assert found.startswith("Not yet. ") and verdict in found


# ---------------------------------------------------------------- the order of a ring


def test_best_order_solution(world):
    assert says(checks.two_hosts.best_order, world, solution("best_order")) == (
        "Solved. No ring goes from host to host more often than there are hosts."
    )


def test_best_order_skeleton(world):
    assert says(checks.two_hosts.best_order, world, skeleton("best_order")) == (
        "Not yet. For ranks on the hosts [0, 1, 0, 1] rank 0 returned [0, 1, 2, 3]. That ring goes from host to host "
        "4 times, and 2 times will do."
    )


RIGHT_ORDERS = {
    "backwards": "def best_order(hosts):\n    return sorted(range(len(hosts)), key=lambda r: (-hosts[r], -r))",
    "host by host": """
        def best_order(hosts):
            order = []
            for host in dict.fromkeys(hosts):
                order += [r for r, there in enumerate(hosts) if there == host]
            return order
        """,
    "a tensor": "def best_order(hosts):\n    return torch.tensor(hosts).argsort()",
    "a tuple": "def best_order(hosts):\n    return tuple(r for _, r in sorted((h, r) for r, h in enumerate(hosts)))",
}


@pytest.mark.parametrize("answer", RIGHT_ORDERS.values(), ids=RIGHT_ORDERS)
def test_best_order_in_another_way(world, answer):
    assert says(checks.two_hosts.best_order, world, answer).startswith("Solved. ")


@pytest.mark.parametrize(
    ("returned", "verdict"),
    [
        pytest.param("sorted(hosts)", "returned [0, 0, 1, 1], expected a list of the 4 ranks", id="hosts"),
        pytest.param("list(range(len(hosts)))[::-1]", "goes from host to host 4 times", id="only turned round"),
        pytest.param("[r for r in range(len(hosts)) if hosts[r] == 0]", "returned [0, 1], expected", id="one host"),
        pytest.param("None", "returned None, expected a list", id="nothing"),
        pytest.param(
            "[r for l in range(2) for r in range(l, len(hosts), 2)]", "goes from host to host 4 times", id="two by two"
        ),
    ],
)
def test_best_order_that_is_wrong(world, returned, verdict):
    found = says(checks.two_hosts.best_order, world, f"def best_order(hosts):\n    return {returned}")
    assert found.startswith("Not yet. ") and verdict in found


# ---------------------------------------------------------------- shards


def test_sharded_solution(world):
    assert says(checks.two_hosts.sharded_all_reduce, world, solution("sharded_all_reduce")) == (
        "Solved. Every rank holds the sum, and each has brought 524288 bytes to the other hosts."
    )


def test_sharded_skeleton(world):
    assert says(checks.two_hosts.sharded_all_reduce, world, skeleton("sharded_all_reduce")) == (
        "Not yet. The sum is right. Rank 0 brought 1048576 bytes to ranks of other hosts, expected 524288: "
        "one of 2 shards of 1048576 bytes."
    )


RIGHT_SHARDS = {
    "lists": """
        def sharded_all_reduce(tensor, inside, across):
            shards = list(tensor.chunk(m))
            mine = torch.empty_like(shards[0])
            dist.reduce_scatter(mine, shards, group=inside)
            dist.all_reduce(mine, group=across)
            dist.all_gather(shards, mine, group=inside)
        """,
    "everything added up inside": """
        def sharded_all_reduce(tensor, inside, across):
            dist.all_reduce(tensor, group=inside)
            mine = tensor.chunk(m)[dist.get_rank(inside)].clone()
            dist.all_reduce(mine, group=across)
            dist.all_gather_into_tensor(tensor, mine, group=inside)
        """,
    "messages across": """
        def sharded_all_reduce(tensor, inside, across):
            mine = torch.empty(len(tensor) // m)
            dist.reduce_scatter_tensor(mine, tensor, group=inside)
            other, peer = torch.empty_like(mine), (rank + m) % n
            works = [dist.irecv(other, peer), dist.isend(mine, peer)]
            for work in works:
                work.wait()
            dist.all_gather_into_tensor(tensor, mine + other, group=inside)
        """,
}


@pytest.mark.parametrize("answer", RIGHT_SHARDS.values(), ids=RIGHT_SHARDS)
def test_sharded_in_another_way(world, answer):
    assert says(checks.two_hosts.sharded_all_reduce, world, answer).startswith("Solved. ")


@pytest.mark.parametrize(
    ("right", "wrong", "verdict"),
    [
        pytest.param("    dist.all_reduce(shard, group=across)\n", "", "Rank 0 holds 3, expected", id="nothing across"),
        pytest.param("dist.all_reduce(shard, group=across)", "dist.all_reduce(shard)", "Rank 0 holds 20", id="all"),
        pytest.param(
            "    dist.all_gather_into_tensor(tensor, shard, group=inside)",
            "",
            "Rank 0 holds 1, expected",
            id="not gathered",
        ),
        pytest.param(
            "dist.all_reduce(shard, group=across)",
            "dist.all_reduce(shard, group=across)\n    dist.barrier()\n    dist.all_reduce(tensor[:8].clone())",
            "Rank 0 brought 524320 bytes",
            id="more than its shard",
        ),
        pytest.param(
            "    dist.all_reduce(shard, group=across)\n    dist.all_gather_into_tensor(tensor, shard, group=inside)",
            "    dist.all_gather_into_tensor(tensor, shard, group=inside)\n    dist.all_reduce(tensor, group=across)",
            "Rank 0 brought 1048576 bytes",
            id="gathered too early",
        ),
    ],
)
def test_sharded_that_is_wrong(world, right, wrong, verdict):
    answer = solution("sharded_all_reduce")
    assert answer.count(right) == 1
    found = says(checks.two_hosts.sharded_all_reduce, world, answer.replace(right, wrong))
    assert found.startswith("Not yet. ") and verdict in found


# ---------------------------------------------------------------- one ring or two levels


def test_two_levels_pay_solution(world):
    assert says(checks.two_hosts.two_levels_pay, world, solution("two_levels_pay")) == (
        "Solved. Every rank chose the faster way for each of 5 clusters."
    )


def test_two_levels_pay_skeleton(world):
    assert says(checks.two_hosts.two_levels_pay, world, skeleton("two_levels_pay")) == (
        "Not yet. For 2 hosts of 8 ranks, 64 MiB, 10 µs and 1 GB/s inside and 10 µs and 1 GB/s across rank 0 returned "
        "True, and one ring takes 126 ms, two levels 185 ms."
    )


RIGHT_CHOICES = {
    "step by step": """
        def two_levels_pay(h, m, size, inside, across):
            n, ring, levels = h * m, 0, 0
            for _ in range(2 * (n - 1)):
                ring += across[0] + size / n / across[1]
            for _ in range(2 * (m - 1)):
                levels += inside[0] + size / m / inside[1]
            for _ in range(2 * (h - 1)):
                levels += across[0] + m * (size / m / h) / across[1]
            return levels < ring
        """,
    "as a tensor": """
        def two_levels_pay(h, m, size, inside, across):
            ranks = torch.tensor([h * m, m, h], dtype=torch.float64)
            alpha, beta = torch.tensor([across, inside, across], dtype=torch.float64).T
            ring, within, between = 2 * (ranks - 1) * (alpha + size / ranks / beta)
            return within + between < ring
        """,
    "what is saved": """
        def two_levels_pay(h, m, size, inside, across):
            saved = (h * m - h) * across[0] + (1 / h - 1 / (h * m)) * size / across[1]
            paid = (m - 1) * inside[0] + (1 - 1 / m) * size / inside[1]
            return int(saved > paid)
        """,
}


@pytest.mark.parametrize("answer", RIGHT_CHOICES.values(), ids=RIGHT_CHOICES)
def test_two_levels_pay_in_another_way(world, answer):
    assert says(checks.two_hosts.two_levels_pay, world, answer).startswith("Solved. ")


@pytest.mark.parametrize(
    ("returned", "verdict"),
    [
        pytest.param("size > 2**20", "For 2 hosts of 8 ranks, 64 MiB", id="by size"),
        pytest.param("inside[1] > across[1]", "For 16 hosts of 8 ranks", id="by bandwidth"),
        pytest.param("h < 100 and inside[1] > across[1] or size == 2**12", "For 128 hosts", id="by hosts"),
        pytest.param("False", "rank 0 returned False, and one ring takes 252 ms, two levels 170 ms", id="never"),
        pytest.param("None", "Rank 0 returned None, expected True or False", id="nothing"),
    ],
)
def test_two_levels_pay_that_is_wrong(world, returned, verdict):
    answer = f"def two_levels_pay(h, m, size, inside, across):\n    return {returned}"
    found = says(checks.two_hosts.two_levels_pay, world, answer)
    assert found.startswith("Not yet. ") and verdict in found


# ---------------------------------------------------------------- hosts in name only


def test_hosts_without_cables_have_their_sums_checked(monkeypatch, worlds):
    monkeypatch.setattr(helpers.ranks.local, "Supervisor", partial(Supervisor, private=False))
    world = World(4, hosts=2)
    try:
        world.view.execute(SETUP, silent=True)
        assert "no cables" in says(checks.two_hosts.my_two_level_all_reduce, world, solution("my_two_level_all_reduce"))
        wrong = "def my_two_level_all_reduce(tensor):\n    dist.all_reduce(tensor, group=inside)"
        assert "Rank 0 holds 3, expected 10" in says(checks.two_hosts.my_two_level_all_reduce, world, wrong)
    finally:
        world.stop()
