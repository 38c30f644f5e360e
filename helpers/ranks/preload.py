"""What every rank needs, imported once, in the process that the ranks are forked from."""

# ruff: noqa: E402, F401
import gc
import sys

# ipykernel imports debugpy where it can. A rank is not debugged through ipyparallel, so spare it the time and memory.
sys.modules["debugpy"] = None
import ipykernel.debugger

del sys.modules["debugpy"]

import sqlite3

import ipyparallel.engine.app
import IPython.core.completerlib
import IPython.extensions.storemagic
import torch.distributed.rpc
import tornado.platform.asyncio
import tornado.queues

import helpers.ranks.rank

# A garbage collection writes to the objects that it visits, and a page that is written to is shared no longer.
gc.collect()
gc.freeze()
