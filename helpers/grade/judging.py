"""A submission's exercises are judged in sandboxes, under a watch: nothing that an answer does reaches this process.

Of a sandbox this process reads lines of limited length, and takes from them no more than whether the next exercise is
solved, and a sentence. A sandbox that takes too much time, memory or processes is ended, with all that it has started.
"""

import json
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

import psutil

from helpers.grade import sandbox
from helpers.grade.exercises import Exercise

SECONDS = 150  # for one exercise, its setup included: a check itself gives up after 40
PROCESSES = 100
_BYTES_OF_A_LINE = 2**16
_SECONDS_BETWEEN_LOOKS = 0.25


class Verdict(NamedTuple):
    """Whether an exercise is solved, the sentence of its check, and whether the check came to its end."""

    solved: bool
    sentence: str
    finished: bool = True


class _Ended(Exception):
    """Why a sandbox has to be ended, as a sentence."""


def judged(parameters: str, exercises: Sequence[Exercise]) -> dict[str, Verdict]:
    """Judge exercises with these parameters, and return the verdict on each by its name.

    After an answer that is not solved, or that is ended, the next one gets a fresh sandbox.
    """
    verdicts = {}
    remaining = list(exercises)
    while remaining:
        found = _run(parameters, remaining)
        verdicts.update(zip([exercise.name for exercise in remaining], found, strict=False))
        remaining = remaining[len(found) :]
    return verdicts


def _run(parameters, exercises):
    """Return the verdicts on the first exercises, at least one: up to the first that is not solved."""
    verdicts = []
    key = secrets.token_hex()
    with _process([*sandbox.command_in_sandbox(), sys.executable, "-m", "helpers.grade.runner"]) as process:
        with suppress(BrokenPipeError), process.stdin:  # an end that comes so early is told below
            job = {"key": key, "parameters": parameters, "exercises": exercises}
            process.stdin.write(json.dumps(job).encode())
        lines = _Lines(process)
        try:
            while len(verdicts) < len(exercises) and all(verdict.solved for verdict in verdicts):
                verdicts.append(_verdict(lines.next(time.monotonic() + SECONDS), key, len(verdicts)))
        except _Ended as ended:
            verdicts.append(Verdict(False, str(ended), finished=False))
    return verdicts


def _verdict(line, key, number):
    """Return what a line of the sandbox says of the exercise with this number, and trust nothing else in it."""
    try:
        signature, solved, sentence = json.loads(line)
        signed = signature == sandbox.signature(key, number, solved, sentence)
    except (ValueError, TypeError, RecursionError):
        signed = False
    if not signed or type(solved) is not bool or type(sentence) is not str:
        raise _Ended("The answer attacked the process that judges it, and was ended.")
    return Verdict(solved, sentence[: sandbox.LETTERS])


class _Lines:
    """The lines that a sandbox writes."""

    def __init__(self, process):
        self._process = process
        self._read = b""
        self._shared = psutil.virtual_memory().shared

    def next(self, deadline):
        """Return the next line; raise `_Ended` when there is none before the deadline, or no limit is kept."""
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._read:
            if len(self._read) > _BYTES_OF_A_LINE:
                raise _Ended("The answer attacked the process that judges it, and was ended.")
            if time.monotonic() > deadline:
                raise _Ended(f"The answer took more than {SECONDS} s, and was ended.")
            if excess := _excess(self._process, self._shared):
                raise _Ended(f"The answer {excess}, and was ended.")
            if select.select([descriptor], [], [], _SECONDS_BETWEEN_LOOKS)[0]:
                some = os.read(descriptor, _BYTES_OF_A_LINE)
                if not some:
                    raise _Ended("The answer ended the process that judges it.")
                self._read += some
        line, _, self._read = self._read.partition(b"\n")
        return line


@contextmanager
def _process(command):
    """Start a sandbox, and end it with all that is in it."""
    process = None
    try:
        with _interrupts_held_back():
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        yield process
    finally:
        if process is not None:
            inside = _descendants(process.pid)
            process.kill()  # bubblewrap's parent: all others go with it, except a process that has just begun
            process.wait()
            process.stdout.close()
            for member in inside:
                with suppress(psutil.NoSuchProcess):
                    member.kill()


@contextmanager
def _interrupts_held_back():
    """Have an Interrupt wait for the end of the block: a process that has begun, and that nobody knows, would stay."""
    pressed = []
    before = signal.signal(signal.SIGINT, lambda *_: pressed.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def _excess(process, shared):
    """Return what the sandbox has taken too much of, an empty string when it keeps within its limits.

    `shared` are the bytes that were in files in memory, anywhere on the machine, when the sandbox started. A process
    need not map such a file, and then no process counts its memory.
    """
    inside = _descendants(process.pid)
    if len(inside) > PROCESSES:
        return f"started more than {PROCESSES} processes"
    in_files = psutil.virtual_memory().shared - shared
    if max(in_files, sum(map(_memory, inside))) > sandbox.MEMORY:
        return f"took more than {sandbox.MEMORY // 2**30} GiB of memory"
    return ""


def _memory(process):
    """Return the bytes that a process takes; a page that processes share is divided among them."""
    try:
        return process.memory_full_info().pss
    except psutil.NoSuchProcess:  # it has just ended
        return 0
    except psutil.AccessDenied:  # bubblewrap with the rights of root: what is shared counts for each
        info = process.memory_info()
        return info.rss - info.shared


def _descendants(pid):
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []
