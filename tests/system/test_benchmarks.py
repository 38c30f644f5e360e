"""Every benchmark that belongs to `make bench` runs to its end: a change of a lesson or a helper may have broken it."""

import subprocess
import sys

import pytest
from lesson_files import ROOT

from benchmarks.__main__ import ONLY_BY_NAME, PARTS

RUN_ELSEWHERE = {"notebooks"}  # test_notebooks.py runs every notebook


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", sorted(PARTS.keys() - ONLY_BY_NAME - RUN_ELSEWHERE))
def test_a_benchmark_prints_its_table(part):
    run = subprocess.run([sys.executable, "-m", "benchmarks", part], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    header, *rows = [line for line in run.stdout.splitlines() if "cores" not in line]
    assert header.split() == ["what", "measured", "compared", "with", "ratio"]
    assert rows
