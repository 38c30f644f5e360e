"""The ipyparallel controller, in a process group that ends when the process that started it has ended.

Called as `python -m helpers.controller PID ARGUMENTS`, where PID is that process and the rest is for ipcontroller.
"""

import os
import signal
import sys
import threading
import time


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os.killpg(0, signal.SIGKILL)  # the group: the controller's heart monitor is a process of its own


if __name__ == "__main__":
    threading.Thread(target=_end_with, args=[int(sys.argv.pop(1))], daemon=True).start()

    from ipyparallel.controller.app import main

    main()
