"""One fresh process that starts a world of 4 ranks on so many hosts, uses it and restarts it.

Prints its measurements as the last line, in JSON: seconds.
"""

import json
import sys
import time

import psutil

from benchmarks.with_world import FIRST_CELL, seconds
from helpers import World

if __name__ == "__main__":
    figures = {}
    world = World(4, hosts=int(sys.argv[1]))
    world.view.execute(FIRST_CELL)
    figures["first all_reduce"] = time.time() - psutil.Process().create_time()
    figures["restart"] = seconds(world.restart)
    figures["stop"] = seconds(world.stop)
    print(json.dumps(figures))
