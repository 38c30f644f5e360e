"""What every rank needs, imported once, in the process that the ranks are forked from: the fork server of the notebook.

The fork server ends when everything that it has forked has ended, and the notebook, too. It leads a session of its own,
so it is still there when the notebook's whole process group has been killed, and removes the notebook's folder.
"""

# ruff: noqa: E402, F401
import atexit
import gc
import os
import shutil
import sys

from helpers.ranks.processes import FOLDER_TO_REMOVE

if FOLDER_TO_REMOVE in os.environ:
    if os.getsid(0) != os.getpid():  # as the spare of a kernel it does so already
        os.setsid()
    atexit.register(shutil.rmtree, os.environ.pop(FOLDER_TO_REMOVE), ignore_errors=True)

# ipykernel imports debugpy where it can. A rank is not debugged through ipyparallel, so spare it the time and memory.
sys.modules["debugpy"] = None
import ipykernel.debugger

del sys.modules["debugpy"]

import sqlite3

import ipyparallel.controller.app
import ipyparallel.engine.app
import IPython.core.completerlib
import IPython.extensions.storemagic
import numpy
import torch.distributed.rpc
import tornado.platform.asyncio
import tornado.queues
import zmq.devices.monitoredqueue

import helpers.ranks.controller
import helpers.ranks.host

# A garbage collection writes to the objects that it visits, and a page that is written to is shared no longer.
gc.collect()
gc.freeze()
