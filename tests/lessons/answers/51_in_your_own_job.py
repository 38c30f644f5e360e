# %% World(4)
import pickle, threading, time
from collections import defaultdict
from contextlib import contextmanager
from datetime import timedelta
from itertools import zip_longest
from pathlib import Path
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace

dist.init_process_group("gloo", timeout=timedelta(seconds=30))
rank, world_size = dist.get_rank(), dist.get_world_size()

# %% my_difference: solution
# Solved. For every difference, it returned the number of the call and the ranks that made each call.

# %% my_difference: by places
# Solved. ...
def my_difference(calls):
    for place in range(max(len(own) for own in calls)):
        made = [own[place] if place < len(own) else None for own in calls]
        if len(set(made)) > 1:
            return place + 1, {call: [r for r, other in enumerate(made) if other == call] for call in set(made)}

# %% my_difference
# Solved. ...
def my_difference(calls):
    for number, made in enumerate(zip_longest(*calls), start=1):
        ranks_of = defaultdict(list)
        for rank, call in enumerate(made):
            ranks_of[call].append(rank)
        if len(ranks_of) > 1:
            return number, ranks_of
    return None

# %% my_difference
# Solved. ...
def my_difference(calls):
    longest = max(map(len, calls))
    calls = [own + [None] * (longest - len(own)) for own in calls]
    number = 0
    while number < longest and len({own[number] for own in calls}) == 1:
        number += 1
    if number == longest:
        return None
    found = {}
    for rank, own in enumerate(calls):
        found[own[number]] = found.get(own[number], ()) + (rank,)
    return [number + 1, found]

# %% my_difference: from 0
# Not yet. ... my_difference returned call 1, expected call 2.
# answer "by places", with `place + 1` as `place`

# %% my_difference: the shortest
# Not yet. A rank with one call fewer: on rank 0 my_difference returned None, expected a number ...
# answer "by places", with `max(len(own) for own in calls)` as `min(len(own) for own in calls)`

# %% my_difference: two ranks
# Not yet. A rank with another shape: on rank 0 my_difference returned None, expected a number ...
# answer "by places", with `len(own) for own in calls` as `len(own) for own in calls[:2]`
# and `None for own in calls` as `None for own in calls[:2]`

# %% my_difference: the last place
# Not yet. All ranks make the same calls: my_difference raised UnboundLocalError ...
def my_difference(calls):
    for place in range(max(len(own) for own in calls)):
        made = [own[place] if place < len(own) else None for own in calls]
        if len(set(made)) > 1:
            found = place + 1, {call: [r for r, other in enumerate(made) if other == call] for call in set(made)}
    return found

# %% my_difference: the others
# Not yet. ... my_difference returned [3] for 'all_reduce([1])' at call 2, expected [0, 1, 2].
# answer "by places", with `other =` as `other !`

# %% my_difference: whether
# Not yet. ... my_difference returned False ...
def my_difference(calls):
    return len(set(map(tuple, calls))) > 1

# %% my_difference: always
# Not yet. All ranks make the same calls: on rank 0 my_difference returned 2 ...
def my_difference(calls):
    return 2

# %% my_difference: the ranks of this world
# Not yet. A job with twice as many ranks as this world: on rank 0 my_difference returned [0, 1, 2] for
# 'all_reduce([1])' at call 2, expected [0, 1, 2, 4, 5, 6].
# solution, with `for rank, rank_calls in enumerate(calls)` as `for rank, rank_calls in enumerate(calls[:world_size])`

# %% my_difference: changes the lists
# Not yet. A rank with one call fewer: on rank 0 my_difference changed its argument, expected it unchanged.
def my_difference(calls):
    longest = max(map(len, calls))
    for own in calls:
        own += [None] * (longest - len(own))
    for number, made in enumerate(zip(*calls), start=1):
        if len(set(made)) > 1:
            return number, {call: [rank for rank, other in enumerate(made) if other == call] for call in made}

# %% my_difference: takes the calls out of the lists
# Not yet. All ranks make the same calls: on rank 0 my_difference changed its argument, expected it unchanged.
def my_difference(calls):
    number = 0
    while any(calls):
        number += 1
        made = [own.pop(0) if own else None for own in calls]
        if len(set(made)) > 1:
            return number, {call: [rank for rank, other in enumerate(made) if other == call] for call in made}

# %% my_difference: skeleton
# Not yet. A rank with another shape: on rank 0 my_difference returned None ...

# %% my_difference: not defined
# Not yet. Rank 0 has no function `my_difference`: run the cell that defines it ...
globals().pop("my_difference", None)

# %% my_alarm: solution
# Solved. Each rank that waited wrote its record while it waited, and no other record was written.

# %% my_alarm: with a timer
# Solved. ...
@contextmanager
def my_alarm(seconds, path):
    timer = threading.Timer(seconds, lambda: Path(path).write_bytes(_dump_fr_trace()))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()

# %% my_alarm
# Solved. ...
@contextmanager
def my_alarm(seconds, path):
    ended = threading.Event()

    def watch():
        if not ended.wait(seconds):
            with open(path, "wb") as file:
                file.write(_dump_fr_trace())

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        ended.set()

# %% my_alarm
# Solved. ...
class my_alarm:
    def __init__(self, seconds, path):
        self.timer = threading.Timer(seconds, self.write, [path])

    def write(self, path):
        record = pickle.loads(_dump_fr_trace())
        Path(path).write_bytes(pickle.dumps(record))

    def __enter__(self):
        self.timer.start()

    def __exit__(self, *error):
        self.timer.cancel()

# %% my_alarm: afterwards
# Not yet. Rank 0 wrote its record after the block, expected it during the block: a hang never ends.
@contextmanager
def my_alarm(seconds, path):
    begin = time.monotonic()
    yield
    if time.monotonic() - begin > seconds:
        Path(path).write_bytes(_dump_fr_trace())

# %% my_alarm: never off
# Not yet. ... a block ended in time, but a record was written, expected none.
# answer "with a timer", with `timer.cancel()` as `pass`

# %% my_alarm: not off after an error
# Not yet. On rank 0 a block ended in time with an error, but a record was written, expected none.
@contextmanager
def my_alarm(seconds, path):
    timer = threading.Timer(seconds, lambda: Path(path).write_bytes(_dump_fr_trace()))
    timer.start()
    yield
    timer.cancel()

# %% my_alarm: off only after one
# Not yet. On rank 0 a block ended in time, but a record was written, expected none.
# answer "with a timer", with `finally:` as `except ZeroDivisionError:` and `timer.cancel()` as `timer.cancel(); raise`

# %% my_alarm: no record
# Not yet. The file of rank 0 is not a flight record, expected a file that `pickle.loads` reads.
# answer "with a timer", with `_dump_fr_trace()` as `b"a note"`

# %% my_alarm: no manager
# Not yet. Rank 0 raised TypeError: 'NoneType' object does not support the context manager protocol ...
def my_alarm(seconds, path):
    pass

# %% my_alarm: an alarm that swallows errors
# Not yet. On rank 0 the block raised a ZeroDivisionError, and my_alarm raised nothing, expected the same error.
@contextmanager
def my_alarm(seconds, path):
    timer = threading.Timer(seconds, lambda: Path(path).write_bytes(_dump_fr_trace()))
    timer.start()
    try:
        yield
    except ZeroDivisionError:
        pass
    finally:
        timer.cancel()

# %% my_alarm: the record of the beginning
# Not yet. The record of rank 0 has no all_reduce of 13 elements, expected the call in which the rank waited.
# answer "with a timer", with `lambda: Path(path).write_bytes(_dump_fr_trace())` as `Path(path).write_bytes, [_dump_fr_trace()]`

# %% my_alarm: always after the same time
# Not yet. On rank 3 a block took 2.5 s, and a record was written, expected none before 3.3 s: `seconds` says when.
# answer "with a timer", with `Timer(seconds` as `Timer(1.5`

# %% my_alarm: one timer for all blocks
# Not yet. On rank 0 a block with an alarm inside a block with an alarm ended in time, but a record was written,
# expected none: each alarm needs a timer of its own.
# answer "with a timer", with `    timer = threading` as `    global timer; timer = threading`

# %% my_alarm: skeleton
# Not yet. Rank 0 waited for 2.5 s, but no record was written, expected a record after 0.8 s.

# %% my_alarm: not defined
# Not yet. Rank 0 has no function `my_alarm`: run the cell that defines it ...
globals().pop("my_alarm", None)

# %% my_suspects: solution
# Solved. It returned ranks with errors of their own first, otherwise ranks without a file, and none without any error.

# %% my_suspects: by echoes
# Solved. ...
ECHOES = ("Timed out waiting", "Connection closed by peer", "Connection reset by peer")

def my_suspects(errors):
    own = [r for r, e in enumerate(errors) if e and not any(echo in e for echo in ECHOES)]
    if own or not any(errors):
        return own
    return [r for r, e in enumerate(errors) if e is None]

# %% my_suspects
# Solved. ...
import re

def my_suspects(errors):
    echo = re.compile("Timed out waiting|Connection (closed|reset) by peer")
    kinds = [("none" if e is None else "echo" if echo.search(e) else "own") for e in errors]
    for kind in ["own"] + ["none"] * ("echo" in kinds):
        if kind in kinds:
            return [r for r in range(len(errors)) if kinds[r] == kind]
    return []

# %% my_suspects
# Solved. ...
def my_suspects(errors):
    own, silent, echoes = (), (), 0
    for r, e in enumerate(errors):
        if e is None:
            silent += (r,)
        elif "Timed out waiting" in e or "by peer" in e:
            echoes += 1
        else:
            own += (r,)
    return own or (silent if echoes else ())

# %% my_suspects: silence
# Not yet. No rank fails: on rank 0 my_suspects returned [0, 1, 2, 3], expected []. ...
# answer "by echoes", with `if own or not any(errors):` as `if own:`

# %% my_suspects: any time-out
# Not yet. The disk of a rank does not answer: on rank 0 my_suspects returned [], expected [3]. ...
# answer "by echoes", with `Timed out waiting` as `imed out`

# %% my_suspects: own errors only
# Not yet. A rank sleeps: on rank 0 my_suspects returned [], expected [3]. ...
# answer "by echoes", with `if own or not any(errors):` as `if True:`

# %% my_suspects: the first only
# Not yet. Two ranks have errors of their own: on rank 0 my_suspects returned [0], expected [0, 3]. ...
# answer "by echoes", with `return own` as `return own[:1]`

# %% my_suspects: both kinds
# Not yet. A rank has an error of its own, and another rank has no file: on rank 0 my_suspects returned [0, 3], expected
# [0]. ...
def my_suspects(errors):
    def is_echo(error):
        return "Timed out waiting" in error or "by peer" in error
    return [r for r, error in enumerate(errors) if any(errors) and (error is None or not is_echo(error))]

# %% my_suspects: without the third echo
# Not yet. A rank ends without a file, and the other ranks have `Connection reset by peer`: on rank 0 my_suspects
# returned [0, 1, 2], expected [3]. The errors were: rank 0: an echo; ...
# answer "by echoes", with `, "Connection reset by peer"` as ``

# %% my_suspects: without the second echo
# Not yet. ... my_suspects returned ...
# answer "by echoes", with `"Connection closed by peer", ` as ``

# %% my_suspects: every RuntimeError is an echo
# Not yet. ... my_suspects returned ...
# answer "by echoes", with `not any(echo in e for echo in ECHOES)` as `not e.startswith("RuntimeError")`

# %% my_suspects: the ranks of this world
# Not yet. A job with twice as many ranks as this world: on rank 0 my_suspects returned [3], expected [3, 7]. ...
# answer "by echoes", with `own = [r for r, e in enumerate(errors)` as `own = [r for r, e in enumerate(errors[:world_size])`

# %% my_suspects: an index
# Not yet. ... my_suspects raised ValueError ...
# skeleton, with `return [rank for rank, error in enumerate(errors) if error][:1]` as `return errors.index(None)`

# %% my_suspects: skeleton
# Not yet. A rank has an error of its own: on rank 0 my_suspects returned [0] ...

# %% my_suspects: not defined
# Not yet. Rank 0 has no function `my_suspects`: run the cell that defines it ...
globals().pop("my_suspects", None)
