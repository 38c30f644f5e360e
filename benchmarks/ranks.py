"""How fast ranks start, restart and stop, and what they take, each beside what it is compared with.

Every figure is the median of several fresh processes, the compared commands in turn, so that a machine that gets slower
or faster meanwhile does so for both.
"""

import json
import os
import subprocess
import sys
from statistics import median

from tqdm import tqdm

REPEATS = 5
# The ranks keep to the loopback and to one thread each, on both sides.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0"}


def rows() -> list[list]:
    """Measure, and return the rows of the table."""
    world, spawn, plain = [], [], []
    for _ in tqdm(range(REPEATS), desc="fresh processes"):
        world.append(measure("with_world"))
        spawn.append(measure("with_spawn"))
        plain.append(measure("with_plain_engines"))

    def of(runs, name):
        return median(run[name] for run in runs)

    def ratio(mine, name, others, other_name):
        return f"{median(a[name] / b[other_name] for a, b in zip(mine, others, strict=True)):.2f}"

    return [
        [
            "first all_reduce of 4 ranks, from a fresh process",
            f"{of(world, 'first all_reduce'):.2f} s",
            f"{of(spawn, 'first all_reduce'):.2f} s with torch.multiprocessing.spawn",
            ratio(world, "first all_reduce", spawn, "first all_reduce"),
        ],
        [
            "restart after a rank was killed",
            f"{of(world, 'restart'):.2f} s",
            f"{of(world, 'start'):.2f} s for the first start",
            ratio(world, "restart", world, "start"),
        ],
        [
            "memory of a world of 4 ranks",
            f"{of(world, 'memory'):.0f} MiB",
            f"{of(plain, 'memory'):.0f} MiB with ipyparallel's own engines",
            ratio(world, "memory", plain, "memory"),
        ],
        ["a rank's death is noticed after", f"{of(world, 'death'):.3f} s", "", ""],
        ["stop", f"{of(world, 'stop'):.2f} s", "", ""],
    ]


def measure(script: str, *arguments: str) -> dict[str, float]:
    """Run a module of this package in a fresh process, and return what it has measured."""
    command = [sys.executable, "-m", f"benchmarks.{script}", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    if result.returncode:
        sys.exit(f"benchmarks.{script} has failed:\n{result.stderr}")
    return json.loads(result.stdout.splitlines()[-1].split("\r")[-1])
