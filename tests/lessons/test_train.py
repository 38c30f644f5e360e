"""notebooks/train.py trains in all layouts of four ranks like one process, and resumes in other layouts."""

import math
import re
import subprocess
import sys
from itertools import product

import pytest
from lesson_files import ROOT, at_night

TRAIN = ROOT / "notebooks/train.py"
DIMENSIONS = "replicate", "shard", "tensor", "pipeline"
SIZES = [sizes for sizes in product([1, 2, 4], repeat=4) if math.prod(sizes) == 4]
LAYOUTS = [" ".join(f"--{name} {size}" for name, size in zip(DIMENSIONS, sizes, strict=True)) for sizes in SIZES]
# The lesson itself runs the other dimensions beside a pipeline.
OF_EVERY_RUN = "--replicate 2 --shard 1 --tensor 1 --pipeline 2"
# Of 3 steps, each of which sums the losses of 768 tokens in another order; no loss is above 5.
TOLERANCE = 3 * 768 * 2**-53 * 5
# In each step, each token's loss is rounded to bfloat16 once, and the errors of 768 tokens average out. Five
# layouts differed from one process by at most a quarter of this, 0.0005.
TOLERANCE_IN_16_BITS = 3 * 2**-8 * 5 / 768**0.5


def losses(flags, ranks=4):
    """Run the training under torchrun, and return the loss of each step."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", str(TRAIN)]
    run = subprocess.run([*command, *flags.split()], capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stderr
    return [float(loss) for loss in re.findall(r"^step \d+: loss (\S+)$", run.stdout, re.M)]


@pytest.fixture(scope="module")
def of_one_process():
    found = losses("--dtype float64 --steps 3", ranks=1)
    assert len(found) == 3 and found[0] > found[1] > found[2]
    return found


@pytest.fixture(scope="module")
def of_one_process_in_16_bits():
    return losses("--dtype bfloat16 --steps 3", ranks=1)


@pytest.mark.parametrize("layout", [one if one == OF_EVERY_RUN else at_night(one) for one in LAYOUTS])
def test_a_layout_trains_like_one_process(layout, of_one_process):
    assert losses(f"--dtype float64 --steps 3 {layout}") == pytest.approx(of_one_process, rel=0, abs=TOLERANCE)


@pytest.mark.nightly
def test_half_the_ranks_go_on_from_a_checkpoint(tmp_path, of_one_process):
    folder = tmp_path / "checkpoint"
    saved = losses(f"--dtype float64 --steps 3 --shard 2 --pipeline 2 --save {folder} --save-after 2")
    assert saved == pytest.approx(of_one_process, rel=0, abs=TOLERANCE)
    resumed = losses(f"--dtype float64 --steps 3 --tensor 2 --resume {folder}", ranks=2)
    assert resumed == pytest.approx(of_one_process[2:], rel=0, abs=TOLERANCE)


@pytest.mark.nightly
@pytest.mark.parametrize(("saved", "resumed"), [*zip(LAYOUTS, LAYOUTS[1:] + LAYOUTS[:1], strict=True)])
def test_a_layout_goes_on_from_the_checkpoint_of_another(saved, resumed, tmp_path, of_one_process):
    folder = tmp_path / "checkpoint"
    losses(f"--dtype float64 --steps 2 {saved} --save {folder} --save-after 2")
    found = losses(f"--dtype float64 --steps 3 {resumed} --resume {folder}")
    assert found == pytest.approx(of_one_process[2:], rel=0, abs=TOLERANCE)


@pytest.mark.nightly
@pytest.mark.parametrize("layout", ["--shard 4", "--tensor 2 --pipeline 2"])
def test_recomputed_activations_change_nothing(layout, of_one_process):
    found = losses(f"--dtype float64 --steps 3 --recompute {layout}")
    assert found == pytest.approx(of_one_process, rel=0, abs=TOLERANCE)


@pytest.mark.nightly
@pytest.mark.parametrize("layout", LAYOUTS)
def test_recomputed_activations_and_other_micro_batches_change_nothing(layout, of_one_process):
    micro_batches = 8 if layout.endswith("--pipeline 4") else 2  # instead of 4; at least one for each stage
    found = losses(f"--dtype float64 --steps 3 --recompute --micro-batches {micro_batches} {layout}")
    assert found == pytest.approx(of_one_process, rel=0, abs=TOLERANCE)


@pytest.mark.nightly
@pytest.mark.parametrize("layout", LAYOUTS)
def test_in_16_bits_the_loss_differs_a_little(layout, of_one_process, of_one_process_in_16_bits):
    found = losses(f"--dtype bfloat16 --steps 3 {layout}")
    assert found == pytest.approx(of_one_process_in_16_bits, rel=0, abs=TOLERANCE_IN_16_BITS)
    assert found != pytest.approx(of_one_process, rel=0, abs=1e-6)
