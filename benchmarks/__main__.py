"""Measure what the course claims about speed, and print one table for each part.

Run as `python -m benchmarks`, or `make bench`; `python -m benchmarks ring_all_reduce` runs one part. `kernels`,
`interrupts`, `ranks_come_and_go`, `classroom`, `soak` and `cartpole_simulated`, which take long, run only by their
names.
"""

import os
import sys

from benchmarks import (
    a_backend_of_your_own,
    actors,
    board,
    cartpole_simulated,
    classroom,
    data_parallel,
    distributed_rnn,
    history,
    hosts,
    hybrid,
    interrupts,
    kernels,
    learner,
    notebooks,
    pipelines,
    ranks,
    ranks_come_and_go,
    reinforcement_learning,
    ring_all_reduce,
    round_trips,
    sharded_data_parallel,
    soak,
)
from helpers.table import table

PARTS = {
    part.__name__.split(".")[-1]: part
    for part in (
        ranks,
        hosts,
        learner,
        board,
        history,
        ring_all_reduce,
        a_backend_of_your_own,
        data_parallel,
        round_trips,
        reinforcement_learning,
        actors,
        distributed_rnn,
        hybrid,
        pipelines,
        sharded_data_parallel,
        notebooks,
        interrupts,
        kernels,
        ranks_come_and_go,
        classroom,
        soak,
        cartpole_simulated,
    )
}
ONLY_BY_NAME = {"cartpole_simulated", "classroom", "interrupts", "kernels", "ranks_come_and_go", "soak"}


def main(names: list[str]) -> None:
    """Print the tables of these parts, or of all."""
    if unknown := set(names) - PARTS.keys():
        sys.exit(f"There is no part {', '.join(sorted(unknown))}; the parts are {', '.join(PARTS)}.")
    print(f"{os.cpu_count()} cores")
    for name in names or [part for part in PARTS if part not in ONLY_BY_NAME]:
        print(table(["what", "measured", "compared with", "ratio"], PARTS[name].rows()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
