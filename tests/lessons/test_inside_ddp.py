"""What 10_inside_ddp, 12_fewer_bytes and 13_uneven_ranks assert about gradients and bytes fails when it is not so."""

import pytest
from live_lessons import lesson

AVERAGE = "def average_of_the_lesson(", "accepted("
inside = lesson("10_inside_ddp.ipynb", "init_process_group(", "class Net", *AVERAGE, "def watched(")
COMPRESS = "def compress_of_the_lesson(", "compress = accepted("
fewer = lesson("12_fewer_bytes.ipynb", "init_process_group(", "def new_model(", *COMPRESS)
uneven = lesson("13_uneven_ranks.ipynb", "init_process_group(", "def steps(")

# ---------------------------------------------------------------- 10_inside_ddp

EACH = "assert_close(each, parameter.grad / n)"
ONCE = "assert_close(once, parameter.grad / n)"


def accumulated(inside, *, average=(), accumulate=()):
    """Run the accumulation with an average or an accumulation that is broken, then whole again."""
    inside.world.view.execute(inside.cell(AVERAGE[0], *average))
    inside.run(AVERAGE[1])
    inside.world.view.execute(inside.cell("def accumulate(", *accumulate))
    inside.run("no_sync {quiet}")
    lines = inside.failed(inside.cell("alone = Net()"))
    inside.run(*AVERAGE, "def accumulate(")
    return lines


def test_a_hook_that_does_not_average(inside):
    assert accumulated(inside, average=("tensor.div_(n)", "tensor")) == {0: EACH, 1: EACH}


def test_a_hook_that_does_not_add_up(inside):
    change = "dist.all_reduce(tensor.div_(n), async_op=True)", "dist.broadcast(tensor, src=0, async_op=True)"
    assert accumulated(inside, average=change) == {0: EACH, 1: EACH}


def test_accumulated_gradients_of_other_batches(inside):
    lines = accumulated(inside, accumulate=("backward(wrapped, part)", "backward(wrapped, parts[0])"))
    assert lines == {0: EACH, 1: EACH}


@pytest.mark.parametrize("broken", ["quiet and number < 2", "number < 3", "False"])
def test_accumulation_that_sends_too_much_or_too_little(inside, broken):
    inside.world.view.execute(inside.cell("def accumulate(", "quiet and number < 3", broken))
    inside.run("no_sync {quiet}")
    (line,) = set(inside.failed(inside.cell("assert totals == ")).values())
    assert line == "assert totals == {False: 4 * payload, True: payload}"
    inside.run("def accumulate(")


def test_bytes_that_the_hook_has_not_counted(inside):
    inside.run("def settled(")
    source = inside.cell("own_connections()", "    dist.barrier()", "    dist.barrier(); sent.pop()")
    inside.world.view.execute(source)
    inside.run("predicted = ")
    assert set(inside.failed(inside.cell("assert total(sent) == B")).values()) == {"assert total(sent) == B"}


def test_bytes_that_do_not_travel(inside):
    inside.run("def settled(")
    source = inside.cell(
        "traffic.own_connections()", "wrapped(rows).sum().backward()", "wrapped.module(rows).sum().backward()"
    )
    inside.world.view.execute(source)
    inside.run("predicted = ")
    (line,) = set(inside.failed(inside.cell("assert total(sent) == B")).values())
    assert line == "assert not on_linux or abs(counted / predicted - 1) < 0.01"


def test_gradients_that_are_no_views(inside):
    inside.run("def settled(")
    source = inside.cell("storages = {}", "gradient_as_bucket_view=view", "gradient_as_bucket_view=False")
    inside.world.view.execute(source)
    proof = "assert storages == {False: 4, True: len(sent)}"
    assert set(inside.failed(inside.cell(proof)).values()) == {proof}


# ---------------------------------------------------------------- 12_fewer_bytes

RANGE = "assert 0 < min(error(stock), error(fp16)) and max(error(stock), error(fp16)) < 1e-3"
RATIO = "assert 1e-3 < error(bf16) < 1e-2 and 4 < error(bf16) / error(fp16) < 16"


@pytest.mark.parametrize(
    ("whole", "broken", "sentence"),
    [
        pytest.param("bucket.buffer() / n", "bucket.buffer()", RANGE, id="sum, no average"),
        pytest.param("dist.all_reduce(", "dist.broadcast(src=0, tensor=", RANGE, id="not added up"),
        pytest.param(".to(dtype)", ".to(torch.float32)", RANGE, id="not rounded"),
        pytest.param(".to(dtype)", ".to(torch.bfloat16)", RANGE, id="rounded too much"),
        pytest.param(".to(dtype)", ".to(torch.float16)", RATIO, id="fp16 for both"),
    ],
)
def test_a_hook_that_does_not_what_the_stock_one_does(fewer, whole, broken, sentence):
    fewer.world.view.execute(fewer.cell(COMPRESS[0], whole, broken))
    fewer.run(COMPRESS[1], "def step(")
    (line,) = set(fewer.failed(fewer.cell("max(error(stock), error(fp16)) < 1e-3")).values())
    assert line == sentence


# ---------------------------------------------------------------- 13_uneven_ranks


def test_join_with_the_other_divisor(uneven):
    source = uneven.cell(
        "gradients_of_steps = {}", "divide_by_initial_world_size=by_all", "divide_by_initial_world_size=not by_all"
    )
    uneven.world.view.execute(source)
    lines = uneven.failed(uneven.cell("total = sum(range(number + 1, n + 1))"))
    assert lines == {1: "assert abs(gradients_of_steps[True][number] - total / n) < 1e-3"}


def test_join_of_gradients_that_are_not_averaged(uneven):
    source = uneven.cell(
        "gradients_of_steps = {}", "list(steps(model))", "[(rank + 1.0)] * (rank + 1); list(steps(model))"
    )
    uneven.world.view.execute(source)
    lines = uneven.failed(uneven.cell("total = sum(range(number + 1, n + 1))"))
    assert set(lines.values()) == {"assert abs(gradients_of_steps[True][number] - total / n) < 1e-3"}
