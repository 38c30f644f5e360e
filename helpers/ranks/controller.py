"""The ipyparallel controller, which ends with the process that has started it, and takes its children along.

Called as `python -m helpers.ranks.controller PID ARGUMENTS`, where PID is that process and the rest is for
ipcontroller.
"""

import os
import shutil
import signal
import sys
import threading
import time


def _end_with(parent, before_the_end):
    while os.getppid() == parent:
        time.sleep(0.5)
    before_the_end()
    os.killpg(0, signal.SIGKILL)


def _watch(parent, before_the_end=lambda: None):
    threading.Thread(target=_end_with, args=[parent, before_the_end], daemon=True).start()


def _remove_private_folder():
    shutil.rmtree(os.environ["IPP_PROFILE_DIR"], ignore_errors=True)


if __name__ == "__main__":
    _watch(int(sys.argv.pop(1)), _remove_private_folder)
    # The heart monitor is a process that the controller forks.
    os.register_at_fork(after_in_child=lambda: _watch(os.getppid()))

    from ipyparallel.controller.app import main

    main()
