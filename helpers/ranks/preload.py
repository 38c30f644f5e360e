"""Import the modules of every rank once, in the fork server from which the ranks are forked.

The fork server ends when the notebook and all forked processes have ended. It has a session of its own, so it survives
when the notebook's whole process group is killed, and removes the notebook's folder.
"""

# ruff: noqa: E402, F401
import atexit
import gc
import importlib
import json
import os
import shutil
import sys

from helpers.ranks.prefork import FOLDER_TO_REMOVE, MODULES_TO_IMPORT, remove_folder_of_kernel

if FOLDER_TO_REMOVE in os.environ:
    if os.getsid(0) != os.getpid():  # the copy of a kernel has a session already
        os.setsid()
    atexit.register(shutil.rmtree, os.environ.pop(FOLDER_TO_REMOVE), ignore_errors=True)
    atexit.register(remove_folder_of_kernel)

# ipykernel imports debugpy if it can. Ranks are not debugged through ipyparallel, so hide debugpy to save time and
# memory.
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
import helpers.ranks.supervisor

could_not_import = {}  # name of each module that a world asked for and that could not be imported: its error
for name in json.loads(os.environ.pop(MODULES_TO_IMPORT, "[]")):
    try:
        importlib.import_module(name)
    except Exception as error:
        could_not_import[name] = f"{type(error).__name__}: {error}"

# A garbage collection writes to the objects that it visits, and a written page is no longer shared.
gc.collect()
gc.freeze()
