"""What 09_overlap asserts about gradients and hooks fails when it is not so."""

import pytest
from live_lessons import lesson

overlap = lesson(
    "09_overlap.ipynb",
    "init_process_group(",
    "def sgd(",
    "class Bucket",
    "def one_bucket(",
    "def train(",
    "def buckets_by_layer(",
    "def my_hooks(",
    "def hooks_of_the_lesson(",
    "accepted(",
    "def launches(",
    "def overlapped(",
)
SAME_GRADIENTS = "assert_close(gradients, true_gradients, rtol=0, atol=1e-10)"


@pytest.mark.parametrize(
    ("contains", "whole", "broken"),
    [
        pytest.param(
            "def overlapped(", "        for bucket in buckets:\n            bucket.finish()", "", id="no finish"
        ),
        pytest.param("def optimizer_in_hook(", "bucket.finish()", "pass", id="updates with its own gradients"),
        pytest.param("def by_ddp(", "DDP(model, process_group=group, bucket_cap_mb=4)", "model", id="not wrapped"),
    ],
)
def test_gradients_that_are_not_those_of_one_process(overlap, contains, whole, broken):
    assert overlap.failed(overlap.cell(contains, whole, broken)) == {0: SAME_GRADIENTS, 1: SAME_GRADIENTS}
    overlap.run(contains)


@pytest.mark.parametrize(
    ("contains", "whole", "broken"),
    [
        pytest.param("class Bucket", "dist.get_world_size(self.group)", "1", id="sum in the bucket"),
        pytest.param(
            "def buckets_by_layer(", "if parameters:", "if parameters and not buckets:", id="a layer left out"
        ),
    ],
)
def test_what_a_version_uses_is_broken(overlap, contains, whole, broken):
    overlap.world.view.execute(overlap.cell(contains, whole, broken))
    try:
        assert overlap.failed(overlap.cell("def overlapped(")) == {0: SAME_GRADIENTS, 1: SAME_GRADIENTS}
    finally:
        overlap.run(contains, "def overlapped(")


@pytest.mark.parametrize(
    ("whole", "broken"),
    [
        pytest.param("            taken.clear()\n", "", id="never launched again"),
        pytest.param("== len(bucket.views)", "== 1", id="launched before it is full"),
    ],
)
def test_hooks_that_launch_too_early_or_too_seldom(overlap, whole, broken):
    hooks = "def hooks_of_the_lesson(", "accepted("
    overlap.world.view.execute(overlap.cell(hooks[0], whole, broken))
    overlap.run(hooks[1])
    lines = overlap.failed(overlap.cell("def launches("))
    overlap.run(*hooks)
    assert lines == dict.fromkeys(range(2), "assert launches(when_full) == [True, True]")
