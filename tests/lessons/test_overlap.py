"""What 09_overlap asserts about gradients and hooks fails when it is not so."""

import pytest
from live_lessons import lesson

overlap = lesson(
    "09_overlap.ipynb",
    "init_process_group(",
    "def stack(",
    "class Bucket",
    "def one_bucket(",
    "def record(",
    "class EarlyBucketOfTheLesson(",
    "accepted(",
    "def early_buckets(",
    "def as_one_process(",
)
SAME_GRADIENTS = "assert_close(mine.grad, expected.grad, rtol=0, atol=1e-10)"
ON_ALL = dict.fromkeys(range(2), SAME_GRADIENTS)


def test_a_ddp_that_does_not_wrap(overlap):
    change = "DDP(model, bucket_cap_mb=4)", "model"
    assert overlap.failed(overlap.cell("def by_ddp(", *change)) == ON_ALL
    overlap.run("def by_ddp(")


@pytest.mark.parametrize(
    ("contains", "whole", "broken"),
    [
        pytest.param(
            "def early_buckets(",
            "        for bucket in buckets:\n            bucket.finish()",
            "        pass",
            id="no finish",
        ),
        pytest.param("def early_buckets(", "for layer in model]", "for layer in model[1:]]", id="a layer left out"),
        pytest.param("class Bucket", "parameter.grad, n, out", "parameter.grad, 1, out", id="sum in the bucket"),
    ],
)
def test_a_variant_or_its_bucket_is_broken(overlap, contains, whole, broken):
    cells = "class EarlyBucketOfTheLesson(", "accepted(", "def early_buckets("
    overlap.world.view.execute(overlap.cell(contains, whole, broken))
    overlap.run(*[cell for cell in cells if cell != contains])
    try:
        assert overlap.failed(overlap.cell("def as_one_process(", "as_one_process(one_bucket)\n", "")) == ON_ALL
    finally:
        overlap.run("class Bucket", *cells)
