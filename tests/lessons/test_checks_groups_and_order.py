"""The checks of 04_groups_and_order: each accepts the solution, and says what is wrong with other answers."""

import pytest
from answers import cell, says

from helpers import World, checks
from helpers.checks import judging
from helpers.checks.judging import RESTART


def skeleton(function):
    return cell("04_groups_and_order.ipynb", f"def {function}(")


def solution(function):
    return cell("solutions/04_groups_and_order.ipynb", f"def {function}(")


# A shorter timeout than the learner's: a deadlock takes as long.
SETUP = cell("04_groups_and_order.ipynb", "init_process_group(")
SETUP = SETUP.replace("timedelta(seconds=10)", "timedelta(seconds=4)")


# ---------------------------------------------------------------- grid_sums

GRID_SUMS = """
    def grid_sums(number):
        rows = [list(range(n))[first:first + 2] for first in range(0, n, 2)]
        columns = [list(range(n))[first::2] for first in (0, 1)]
        sums = []
        for members in {groups}:
            {make}
            if rank in members:
                sums.append(number.clone())
                dist.all_reduce(sums[-1], group=group)
        return sums
"""
MAKE = "group = dist.new_group(members, timeout=timedelta(seconds=4))"


def test_grid_sums_solution(world):
    assert says(checks.groups_and_order.grid_sums, world, solution("grid_sums")) == (
        "Solved. Every rank holds the sums of its row and its column, after two all_reduces."
    )


def test_grid_sums_skeleton(world):
    assert says(checks.groups_and_order.grid_sums, world, skeleton("grid_sums")) == (
        "Not yet. Rank 0 returned 1 for its row, expected 11."
    )


BY_ENUMERATION = """
    def grid_sums(number):
        rows = [[r for r in range(n) if r // 2 == row] for row in range(n // 2)]
        columns = [[r for r in range(n) if r % 2 == column] for column in (0, 1)]
        sums = []
        for groups in (rows, columns):
            mine, _ = dist.new_subgroups_by_enumeration(groups, timeout=timedelta(seconds=4))
            total = number.clone()
            dist.all_reduce(total, group=mine)
            sums.append(total)
        return sums
"""
BY_A_MESH = """
    def grid_sums(number):
        mesh = dist.device_mesh.init_device_mesh("cpu", (n // 2, 2))
        row, column = number.clone(), number.clone()
        dist.all_reduce(row, group=mesh.get_group(1))
        dist.all_reduce(column, group=mesh.get_group(0))
        return [row, column]
"""


@pytest.mark.parametrize("answer", [BY_ENUMERATION, BY_A_MESH, GRID_SUMS.format(groups="rows + columns", make=MAKE)])
def test_grid_sums_in_other_styles(world, answer):
    assert says(checks.groups_and_order.grid_sums, world, answer).startswith("Solved. ")


def test_grid_sums_in_the_wrong_order(world):
    assert says(checks.groups_and_order.grid_sums, world, GRID_SUMS.format(groups="columns + rows", make=MAKE)) == (
        "Not yet. Rank 0 returned 101 for its row, expected 11."
    )


def test_grid_sums_of_the_rows_only(world):
    assert says(checks.groups_and_order.grid_sums, world, GRID_SUMS.format(groups="rows", make=MAKE)) == (
        "Not yet. Rank 0 returned a list of 1, expected two tensors."
    )


def test_grid_sums_in_the_group_of_all(world):
    answer = """
        def grid_sums(number):
            row, column = number.clone(), number.clone()
            dist.all_reduce(row)
            dist.all_reduce(column)
            return row, column
    """
    assert says(checks.groups_and_order.grid_sums, world, answer) == (
        "Not yet. Rank 0 returned 1111 for its row, expected 11."
    )


def test_grid_sums_by_gathering(world):
    answer = """
        def grid_sums(number):
            numbers = [torch.zeros_like(number) for _ in range(n)]
            dist.all_gather(numbers, number)
            first = rank - rank % 2
            return sum(numbers[first:first + 2]), sum(numbers[rank % 2::2])
    """
    assert says(checks.groups_and_order.grid_sums, world, answer) == (
        "Not yet. Rank 0 called 1 all_gather, expected 2 all_reduce."
    )


def test_grid_sums_in_groups_that_only_their_members_make(broken_world, monkeypatch):
    monkeypatch.setattr(judging, "SECONDS_TO_ANSWER", 6)
    make = f"if rank in members: {MAKE}"
    verdict = says(
        checks.groups_and_order.grid_sums, broken_world, GRID_SUMS.format(groups="rows + columns", make=make)
    )
    # Two groups meet under one name: who finds whom is a matter of luck.
    assert verdict.startswith("Not yet. ") and (RESTART in verdict or "for its" in verdict)


# ---------------------------------------------------------------- stop_together


def test_stop_together_solution(world):
    assert says(checks.groups_and_order.stop_together, world, solution("stop_together")) == (
        "Solved. The ranks stop together, after one collective, which each of them calls every time."
    )


@pytest.mark.parametrize(
    "body",
    [
        "wishes = torch.tensor([float(wish)]); dist.all_reduce(wishes); return wishes.item() > 0",
        "calm = torch.tensor(not wish); dist.all_reduce(calm, dist.ReduceOp.BAND); return not calm",
        "all = [torch.empty(1) for _ in range(n)]; dist.all_gather(all, torch.tensor([1.0 * wish])); return any(all)",
    ],
)
def test_stop_together_in_other_ways(world, body):
    assert says(checks.groups_and_order.stop_together, world, f"def stop_together(wish):\n    {body}").startswith(
        "Solved. "
    )


def test_stop_together_skeleton(world):
    assert says(checks.groups_and_order.stop_together, world, skeleton("stop_together")) == (
        "Not yet. When only the last rank wishes to stop, rank 0 returned False, expected True."
    )


def test_stop_when_all_wish_it(world):
    answer = solution("stop_together").replace("ReduceOp.MAX", "ReduceOp.MIN")
    assert says(checks.groups_and_order.stop_together, world, answer) == (
        "Not yet. When only the last rank wishes to stop, rank 0 returned False, expected True."
    )


def test_stop_as_rank_0_wishes(world):
    answer = """
        def stop_together(wish):
            wish = torch.tensor(wish)
            dist.broadcast(wish, src=0)
            return bool(wish)
    """
    assert says(checks.groups_and_order.stop_together, world, answer) == (
        "Not yet. When only the last rank wishes to stop, rank 0 returned False, expected True."
    )


def test_stop_together_by_objects(world):
    answer = """
        def stop_together(wish):
            wishes = [None] * n
            dist.all_gather_object(wishes, wish)
            return any(wishes)
    """
    assert says(checks.groups_and_order.stop_together, world, answer) == (
        "Not yet. In three calls rank 0 called 6 all_gather, expected one collective a call."
    )


def test_only_who_wishes_to_stop_calls(broken_world):
    answer = """
        def stop_together(wish):
            wishes = torch.tensor(int(wish))
            if wish:
                dist.all_reduce(wishes)
            return bool(wishes)
    """
    assert says(checks.groups_and_order.stop_together, broken_world, answer).startswith("Not yet. ")


# ---------------------------------------------------------------- across_hosts


def test_across_hosts_solution(world):
    assert says(checks.groups_and_order.hierarchical_sum, world, solution("hierarchical_sum")) == (
        "Solved. Every rank holds the sum, and brought only one chunk to an all_reduce across hosts."
    )


def test_across_hosts_of_one_tensor(world):
    answer = """
        def hierarchical_sum(chunks, mesh):
            local = mesh.get_group("local")
            mine = chunks[:1].clone()
            dist.reduce_scatter_tensor(mine, chunks, group=local)
            dist.all_reduce(mine, group=mesh["host"].get_group())
            dist.all_gather_into_tensor(chunks, mine, group=local)
            return chunks
    """
    assert says(checks.groups_and_order.hierarchical_sum, world, answer).startswith("Solved. ")


def test_across_hosts_by_an_all_reduce_within(world):
    answer = """
        def hierarchical_sum(chunks, mesh):
            local = mesh.get_group("local")
            dist.all_reduce(chunks, group=local)
            place = dist.get_rank(local)
            mine = chunks[place : place + 1].clone()
            dist.all_reduce(mine, group=mesh.get_group("host"))
            dist.all_gather(list(chunks.chunk(len(chunks))), mine, group=local)
            return chunks
    """
    assert says(checks.groups_and_order.hierarchical_sum, world, answer).startswith("Solved. ")


def test_across_hosts_skeleton(world):
    assert says(checks.groups_and_order.hierarchical_sum, world, skeleton("hierarchical_sum")) == (
        "Not yet. The sums are right. Rank 0 brought 2 elements to all_reduces across hosts, expected 1 element, once."
    )


def test_across_hosts_in_the_group_of_all(world):
    answer = """
        def hierarchical_sum(chunks, mesh):
            dist.all_reduce(chunks)
            return chunks
    """
    assert says(checks.groups_and_order.hierarchical_sum, world, answer) == (
        "Not yet. The sums are right. Rank 0 brought 2 elements to all_reduces across hosts, expected 1 element, once."
    )


def test_across_hosts_with_the_dimensions_exchanged(world):
    answer = solution("hierarchical_sum").replace("local, host = ", "host, local = ")
    assert says(checks.groups_and_order.hierarchical_sum, world, answer) == (
        "Not yet. The sums are right. Rank 0 brought nothing to all_reduces across hosts, expected 1 element, once."
    )


def test_across_hosts_within_the_host_only(world):
    answer = """
        def hierarchical_sum(chunks, mesh):
            dist.all_reduce(chunks, group=mesh.get_group("local"))
            return chunks
    """
    assert says(checks.groups_and_order.hierarchical_sum, world, answer) == (
        "Not yet. Rank 0 returned [11.0, 22.0], expected [1111.0, 2222.0]."
    )


# ---------------------------------------------------------------- checks.groups_and_order.my_host_group

HOST_GROUP = """
    def my_host_group(hosts):
        for host in {hosts}:
            members = [r for r in range(n) if hosts[r] == host]
            {make}
            if rank in members:
                mine = group
        return mine
"""
EACH = "group = dist.new_group(members, timeout=timedelta(seconds=10))"


def test_the_lessons_own_host_group(world):
    answer = cell("04_groups_and_order.ipynb", "def host_group(").partition("\n\n")[0]
    assert says(checks.groups_and_order.my_host_group, world, answer.replace("host_group(", "my_host_group(")) == (
        "Solved. Each rank has the group of its host, and all ranks make all groups in one order."
    )


@pytest.mark.parametrize(
    "body",
    [
        "b = [r for r in range(n) if hosts[r] == 'b']\n"
        "    a = [r for r in range(n) if r not in b]\n"
        "    both = [dist.new_group(members, timeout=ten) for members in (b, a)]\n"
        "    return both[0] if rank in b else both[1]",
        "apart = [[r for r in range(n) if hosts[r] == host] for host in 'ab']\n"
        "    return dist.new_subgroups_by_enumeration(apart, timeout=ten)[0]",
        "members = [r for r in range(n) if hosts[r] == hosts[rank]]\n"
        "    return dist.new_group(members, timeout=ten, use_local_synchronization=True)",
    ],
)
def test_host_groups_in_other_ways(world, body):
    answer = f"ten = timedelta(seconds=10)\ndef my_host_group(hosts):\n    {body}"
    assert says(checks.groups_and_order.my_host_group, world, answer).startswith("Solved. ")


def test_host_group_skeleton(world):
    assert says(checks.groups_and_order.my_host_group, world, skeleton("my_host_group")) == (
        "Not yet. Rank 0 returned no group, expected the group of ranks [0, 2]."
    )


def test_host_groups_that_only_their_members_make(world):
    answer = f"""
        def my_host_group(hosts):
            members = [r for r in range(n) if hosts[r] == hosts[rank]]
            {EACH}
            return group
    """
    assert says(checks.groups_and_order.my_host_group, world, answer) == (
        "Not yet. Rank 0 made the groups [[0, 2]], and rank 1 made [[1, 3]]. "
        "All ranks make all groups, also those that they are not in."
    )


def test_host_groups_in_an_order_of_each_ranks_own(world):
    answer = HOST_GROUP.format(hosts="sorted(set(hosts), reverse=rank % 2)", make=EACH)
    assert says(checks.groups_and_order.my_host_group, world, answer) == (
        "Not yet. Rank 0 made the groups in the order [[0, 2], [1, 3]], and rank 1 in [[1, 3], [0, 2]]."
    )


def test_host_groups_without_a_timeout(world):
    answer = HOST_GROUP.format(hosts="sorted(set(hosts))", make="group = dist.new_group(members)")
    assert says(checks.groups_and_order.my_host_group, world, answer) == (
        "Not yet. The group of ranks [0, 2] waits 30 minutes for a rank that does not come. Give it a timeout of 10 s."
    )


def test_the_group_that_was_made_last(world):
    answer = HOST_GROUP.format(hosts="sorted(set(hosts))", make=EACH).replace("if rank in members", "if True")
    assert says(checks.groups_and_order.my_host_group, world, answer) == (
        "Not yet. Rank 0 returned no group, expected the group of ranks [0, 2]."
    )


# ---------------------------------------------------------------- other numbers of ranks


@pytest.mark.nightly
@pytest.mark.parametrize("size", [2, 5])
def test_the_solutions_in_other_worlds(size):
    world = World(size)
    try:
        world.view.execute(SETUP)
        for function, check in [
            ("grid_sums", checks.groups_and_order.grid_sums),
            ("stop_together", checks.groups_and_order.stop_together),
            ("hierarchical_sum", checks.groups_and_order.hierarchical_sum),
            ("global_mean", checks.groups_and_order.global_mean),
        ]:
            assert says(check, world, solution(function)).startswith("Solved. ")
            if size > 2 or check is not checks.groups_and_order.hierarchical_sum:
                assert says(check, world, skeleton(function)).startswith("Not yet. ")
            else:
                assert says(check, world, skeleton(function)) == (
                    "Solved. Every rank holds the sum. Its host has no other rank, so nothing could be saved: try 4 "
                    "ranks, too."
                )
    finally:
        world.stop()


# ---------------------------------------------------------------- global_mean

ALL_REDUCE = """
    class AllReduce(torch.autograd.Function):
        @staticmethod
        def forward(context, summand):
            total = summand.clone()
            dist.all_reduce(total)
            return total

        @staticmethod
        def backward(context, gradient):
            {backward}

    def global_mean(values):
        return AllReduce.apply(values.mean(dim=0)) / {divisor}
"""
SUMMED = "total = gradient.clone(); dist.all_reduce(total); return total"


def test_global_mean_solution(world):
    assert says(checks.groups_and_order.global_mean, world, solution("global_mean")) == (
        "Solved. Every rank holds the mean over all ranks, and the gradients are those of one process."
    )


@pytest.mark.parametrize(
    "answer",
    [
        ALL_REDUCE.format(backward=SUMMED, divisor="n"),
        """
        import warnings
        import torch.distributed.nn.functional

        def global_mean(values):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return dist.nn.functional.all_reduce(values.mean(dim=0)) / n
        """,
        """
        import warnings
        import torch.distributed.nn.functional

        def global_mean(values):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return torch.cat(dist.nn.functional.all_gather(values)).mean(dim=0)
        """,
    ],
)
def test_global_mean_in_other_ways(world, answer):
    assert says(checks.groups_and_order.global_mean, world, answer).startswith("Solved. ")


def test_global_mean_skeleton(world):
    verdict = says(checks.groups_and_order.global_mean, world, skeleton("global_mean"))
    assert verdict.startswith("Not yet. Rank 0 returned [") and "expected the mean over all ranks, [" in verdict


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (
            "def global_mean(values):\n    mean = values.mean(dim=0)\n    dist.all_reduce(mean)\n    return mean / n",
            "The gradient of the weights, averaged over the ranks, is 0.25 times that of one process. "
            "What the other ranks find for the mean does not come back.",
        ),
        (
            ALL_REDUCE.format(backward="return gradient", divisor="n"),
            "The gradient of the weights, averaged over the ranks, is 0.25 times that of one process. "
            "What the other ranks find for the mean does not come back.",
        ),
        (
            ALL_REDUCE.format(backward=SUMMED.replace("return total", "return total * n"), divisor="n"),
            "The gradient of the weights, averaged over the ranks, is 4 times that of one process.",
        ),
        (
            ALL_REDUCE.format(backward="return gradient * n", divisor="n"),
            "and so is the gradient when all ranks have the same loss. When each has one of its own it is not: the "
            "gradients that the other ranks find for the mean do not come back.",
        ),
        (
            "def global_mean(values):\n    mean = values.detach().mean(dim=0)\n    dist.all_reduce(mean)\n"
            "    return mean / n",
            "on rank 0 no gradient finds its way back through them.",
        ),
    ],
)
def test_global_mean_with_another_gradient(world, answer, verdict):
    said = says(checks.groups_and_order.global_mean, world, answer)
    assert said.startswith("Not yet. The means are right") and said.endswith(verdict)


def test_a_sum_for_a_global_mean(world):
    verdict = says(checks.groups_and_order.global_mean, world, ALL_REDUCE.format(backward=SUMMED, divisor="1"))
    assert verdict.startswith("Not yet. Rank 0 returned [") and "expected the mean over all ranks, [" in verdict
