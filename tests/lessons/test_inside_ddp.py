"""What 10_inside_ddp, 12_fewer_bytes and 13_uneven_ranks assert about gradients and bytes fails when it is not so."""

import pytest
from live_lessons import lesson

HOOK = "def hook_of_the_lesson(", "hook = accepted("
inside = lesson("10_inside_ddp.ipynb", "init_process_group(", "class Net", *HOOK, "def watched(")
COMPRESS = "def compress_of_the_lesson(", "compress = accepted("
fewer = lesson("12_fewer_bytes.ipynb", "init_process_group(", "def new_model(", *COMPRESS)
uneven = lesson("13_uneven_ranks.ipynb", "init_process_group(", "def steps(")

# ---------------------------------------------------------------- 10_inside_ddp

AVERAGED = "assert_close(parameter.grad, expected.grad / n)"
BYTES = "assert sent_bytes == sum(parameter.nbytes for parameter in alone.parameters())"


def accumulated(inside, *, hook=(), accumulation=()):
    """Return the asserts that fail in the accumulation with a broken hook or a broken loop; then mend the hook."""
    inside.world.view.execute(inside.cell(HOOK[0], *hook))
    inside.run(HOOK[1])
    lines = inside.failed(inside.cell("# Proof: four micro-batches", *accumulation))
    inside.run(*HOOK)
    return lines


def test_a_hook_that_does_not_average(inside):
    assert accumulated(inside, hook=(".div_(n)", "")) == {0: AVERAGED, 1: AVERAGED}


def test_a_hook_that_does_not_add_up(inside):
    change = (
        "dist.all_reduce(bucket.buffer().div_(n), async_op=True)",
        "dist.broadcast(bucket.buffer(), 0, async_op=True)",
    )
    assert accumulated(inside, hook=change) == {0: AVERAGED, 1: AVERAGED}


def test_accumulated_gradients_of_other_batches(inside):
    lines = accumulated(inside, accumulation=("batch(4 * rank + 3)", "batch(4 * rank)"))
    assert lines == {0: AVERAGED, 1: AVERAGED}


@pytest.mark.parametrize(
    "change",
    [
        ("with wrapped.no_sync():", "with nullcontext():"),
        (
            "backward(wrapped, batch(4 * rank + 3))",
            "with wrapped.no_sync():\n    backward(wrapped, batch(4 * rank + 3))",
        ),
    ],
)
def test_accumulation_that_sends_too_much_or_too_little(inside, change):
    assert accumulated(inside, accumulation=change) == {0: BYTES, 1: BYTES}


def test_gradients_that_are_no_views(inside):
    change = "gradient_as_bucket_view=as_views", "gradient_as_bucket_view=False"
    proof = "assert of_buckets == of_gradients"
    assert set(inside.failed(inside.cell("def storages(", *change)).values()) == {proof}


def test_options_that_rebuild_or_do_not(inside):
    inside.run("class Reversed", "class Skipping")
    change = 'options_cost({"find_unused_parameters": True})', 'options_cost({"static_graph": True})'
    (line,) = set(inside.failed(inside.cell("found_steps, found_calls", *change)).values())
    assert line == "assert found_calls == len(found_steps[3]) + 1"


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
