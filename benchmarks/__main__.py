"""Measure how fast ranks start, restart and stop, and what they take, each beside what it is compared with.

Run as `python -m benchmarks`, or `make bench`. Every figure is the median of several fresh processes, the compared
commands in turn, so that a machine that gets slower or faster meanwhile does so for both.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from tqdm import tqdm

from helpers.table import table

REPEATS = 5
# The ranks keep to the loopback and to one thread each, on both sides.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0"}


def measure(script: str) -> dict[str, float]:
    """Run a module of this package in a fresh process, and return what it has measured."""
    command = [sys.executable, "-m", f"benchmarks.{script}"]
    result = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    if result.returncode:
        sys.exit(f"benchmarks.{script} has failed:\n{result.stderr}")
    return json.loads(result.stdout.splitlines()[-1].split("\r")[-1])


def seconds_under_nbval(notebook: Path) -> float:
    """Return how long nbval takes for a notebook, and fail if the notebook does."""
    before = time.perf_counter()
    command = [sys.executable, "-m", "pytest", "-q", "--nbval", "--nbval-current-env", "-p", "no:cacheprovider"]
    subprocess.run([*command, str(notebook)], capture_output=True, check=True)
    return time.perf_counter() - before


def main() -> None:
    """Print the table."""
    world, spawn, plain = [], [], []
    for _ in tqdm(range(REPEATS), desc="fresh processes"):
        world.append(measure("with_world"))
        spawn.append(measure("with_spawn"))
        plain.append(measure("with_plain_engines"))

    def of(runs, name):
        return median(run[name] for run in runs)

    def ratio(mine, name, others, other_name):
        return f"{median(a[name] / b[other_name] for a, b in zip(mine, others, strict=True)):.2f}"

    rows = [
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
    notebooks = sorted(Path(__file__).parent.parent.glob("notebooks/*.ipynb"))
    for notebook in tqdm(notebooks, desc="notebooks"):
        runs = [seconds_under_nbval(notebook) for _ in range(REPEATS)]
        rows.append([f"{notebook.name} under nbval", f"{median(runs):.0f} s", "", ""])
    print(f"Medians of {REPEATS} runs, {os.cpu_count()} cores")
    print(table(["what", "measured", "compared with", "ratio"], rows))


if __name__ == "__main__":
    main()
