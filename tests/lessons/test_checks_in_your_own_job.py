"""The checks of notebook 36 accept right answers of any style, and refuse the skeletons and plausible wrong ones."""

import pytest
from answers import cell, says

from helpers import checks

NOTEBOOK = "36_in_your_own_job.ipynb"
SETUP = """
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
"""

DIFFERENCES = {
    "by places": """
        def my_difference(calls):
            for place in range(max(len(own) for own in calls)):
                made = [own[place] if place < len(own) else None for own in calls]
                if len(set(made)) > 1:
                    return place + 1, {call: [r for r, other in enumerate(made) if other == call] for call in set(made)}
    """,
    "zipped": """
        def my_difference(calls):
            for number, made in enumerate(zip_longest(*calls), start=1):
                ranks_of = defaultdict(list)
                for rank, call in enumerate(made):
                    ranks_of[call].append(rank)
                if len(ranks_of) > 1:
                    return number, ranks_of
            return None
    """,
    "padded, and a list": """
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
    """,
}


@pytest.mark.parametrize("answer", DIFFERENCES)
def test_difference_is_found(world, answer):
    assert says(checks.in_your_own_job.my_difference, world, DIFFERENCES[answer]).startswith("Solved. ")


BY_PLACES = DIFFERENCES["by places"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (BY_PLACES.replace("place + 1,", "place,"), "found call 1, expected call 2."),
        (
            BY_PLACES.replace("max(len(own)", "min(len(own)"),
            "A rank with one call less: on rank 0 my_difference returned None, expected a number",
        ),
        (
            BY_PLACES.replace("calls)):", "calls[:2])):").replace("own in calls]", "own in calls[:2]]"),
            "A rank with another shape: on rank 0 my_difference returned None, expected a number",
        ),
        (
            BY_PLACES.replace("return place + 1", "found = place + 1").rstrip() + "\n            return found\n",
            "All ranks alike: my_difference raised UnboundLocalError",
        ),
        (
            BY_PLACES.replace("enumerate(made) if other == call", "enumerate(made) if other != call"),
            "ranks [0, 1, 2] made 'all_reduce of [1]' at call 2, and my_difference names [3].",
        ),
        ("def my_difference(calls): return len(set(map(tuple, calls))) > 1", "my_difference returned False"),
        ("def my_difference(calls): return 2", "All ranks alike: on rank 0 my_difference returned 2"),
    ],
    ids=["from 0", "the shortest", "two ranks", "the last place", "the others", "whether", "always"],
)
def test_wrong_difference(world, answer, reason):
    said = says(checks.in_your_own_job.my_difference, world, answer)
    assert said.startswith("Not yet. ") and reason in said


ALARMS = {
    "a timer": """
        @contextmanager
        def my_alarm(seconds, path):
            timer = threading.Timer(seconds, lambda: Path(path).write_bytes(_dump_fr_trace()))
            timer.start()
            try:
                yield
            finally:
                timer.cancel()
    """,
    "a thread that waits for an event": """
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
    """,
    "a class": """
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
    """,
}


@pytest.mark.parametrize("answer", ALARMS)
def test_alarm_is_set(world, answer):
    assert says(checks.in_your_own_job.my_alarm, world, ALARMS[answer]).startswith("Solved. ")


TIMER = ALARMS["a timer"]
TRIED = "            try:\n                yield\n            finally:\n                timer"
AFTERWARDS = """
        @contextmanager
        def my_alarm(seconds, path):
            begin = time.monotonic()
            yield
            if time.monotonic() - begin > seconds:
                Path(path).write_bytes(_dump_fr_trace())
"""


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (AFTERWARDS, "Rank 0 wrote its record after the block had ended. Who hangs for ever would write none."),
        (TIMER.replace("timer.cancel()", "pass"), "a block ended in time, and a record was written."),
        (
            TIMER.replace(TRIED, "            yield\n            timer"),
            "On rank 0 a block ended with an error, in time, and a record was written.",
        ),
        (
            TIMER.replace("finally:", "except ZeroDivisionError:").rstrip() + "\n                raise\n",
            "On rank 0 a block ended in time, and a record was written.",
        ),
        (
            TIMER.replace("_dump_fr_trace()", "b'a note'"),
            "What rank 0 wrote is no flight record: pickle.loads does not read it.",
        ),
        (
            "def my_alarm(seconds, path): pass",
            "Rank 0 raised TypeError: 'NoneType' object does not support the context manager protocol",
        ),
    ],
    ids=["afterwards", "never off", "not off after an error", "off only after one", "no record", "no manager"],
)
def test_wrong_alarm(world, answer, reason):
    said = says(checks.in_your_own_job.my_alarm, world, answer)
    assert said.startswith("Not yet. ") and reason in said


def test_an_alarm_that_swallows_errors_is_refused(world):
    answer = TIMER.replace("finally:", "except ZeroDivisionError:\n                pass\n            finally:")
    said = says(checks.in_your_own_job.my_alarm, world, answer)
    assert said == "Not yet. On rank 0 the block raised a ZeroDivisionError, and my_alarm let out nothing."


SUSPECTS = {
    "two lists": """
        ECHOES = ("Timed out waiting", "Connection closed by peer", "Connection reset by peer")
        def my_suspects(errors):
            own = [r for r, e in enumerate(errors) if e and not any(echo in e for echo in ECHOES)]
            if own or not any(errors):
                return own
            return [r for r, e in enumerate(errors) if e is None]
    """,
    "a regular expression": """
        import re
        def my_suspects(errors):
            echo = re.compile("Timed out waiting|Connection (closed|reset) by peer")
            kinds = [("none" if e is None else "echo" if echo.search(e) else "own") for e in errors]
            for kind in ["own"] + ["none"] * ("echo" in kinds):
                if kind in kinds:
                    return [r for r in range(len(errors)) if kinds[r] == kind]
            return []
    """,
    "a loop, and a tuple": """
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
    """,
}


@pytest.mark.parametrize("answer", SUSPECTS)
def test_suspects_are_found(world, answer):
    assert says(checks.in_your_own_job.my_suspects, world, SUSPECTS[answer]).startswith("Solved. ")


TWO_LISTS = SUSPECTS["two lists"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (
            TWO_LISTS.replace("if own or not any(errors)", "if own"),
            "Nobody fails: on rank 0 my_suspects returned [0, 1, 2, 3], expected [].",
        ),
        (
            TWO_LISTS.replace('"Timed out waiting"', '"imed out"'),
            "The disk of a rank does not answer: on rank 0 my_suspects returned [], expected [3].",
        ),
        (
            TWO_LISTS.replace("if own or not any(errors):", "if True:"),
            "A rank sleeps: on rank 0 my_suspects returned [], expected [3].",
        ),
        (
            TWO_LISTS.replace("return own\n", "return own[:1]\n"),
            "Two ranks fail by themselves: on rank 0 my_suspects returned [0], expected [0, 3].",
        ),
        ("def my_suspects(errors): return errors.index(None)", "my_suspects raised ValueError"),
    ],
    ids=["silence", "any time-out", "own errors only", "the first only", "an index"],
)
def test_wrong_suspects(world, answer, reason):
    said = says(checks.in_your_own_job.my_suspects, world, answer)
    assert said.startswith("Not yet. ") and reason in said


def skeleton(contains):
    return cell(NOTEBOOK, contains)


@pytest.mark.parametrize(
    ("check", "contains", "reason"),
    [
        (
            checks.in_your_own_job.my_difference,
            "def my_difference",
            "A rank with another shape: on rank 0 my_difference returned None",
        ),
        (checks.in_your_own_job.my_alarm, "def my_alarm", "and no record was written."),
        (
            checks.in_your_own_job.my_suspects,
            "def my_suspects",
            "A rank fails by itself: on rank 0 my_suspects returned [0]",
        ),
    ],
)
def test_skeletons_are_refused(world, check, contains, reason):
    said = says(check, world, skeleton(contains))
    assert said.startswith("Not yet. ") and reason in said


def test_what_nobody_has_defined(broken_world):
    broken_world.restart()
    broken_world.view.execute(SETUP)
    for check, name in (
        (checks.in_your_own_job.my_difference, "difference"),
        (checks.in_your_own_job.my_alarm, "alarm"),
        (checks.in_your_own_job.my_suspects, "suspects"),
    ):
        assert f"Rank 0 has no function `my_{name}`: run the cell that defines it" in repr(check(broken_world))
