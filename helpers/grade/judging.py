"""Have a submission's exercises judged in sandboxes, under a watch, so that no answer can affect this process.

`helpers.grade.runner` is the program in a sandbox; `helpers.checks.judging` decides there whether an answer is right.

This process reads lines of limited length from a sandbox, and takes from each line only whether the next exercise is
solved, and a sentence. A sandbox that uses too much time or memory, or too many processes, is ended with all its
processes.
"""

import json
import os
import secrets
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

import psutil

from helpers.grade import sandbox
from helpers.grade.exercises import SubmittedExercise
from helpers.interrupts import interrupted_later

SECONDS = 150  # for one exercise, including its setup; a check itself gives up after 40 s
PROCESSES = 100
_BYTES_OF_A_LINE = 2**16
_SECONDS_BETWEEN_LOOKS = 0.25


class Grade(NamedTuple):
    """Whether an exercise is solved, the sentence of its check, and whether the check finished.

    In the sandbox, the verdict of the check itself is a `helpers.checks.judging.Verdict`.
    """

    solved: bool
    sentence: str
    finished: bool = True


class _Ended(Exception):
    """Raised when a sandbox has to be ended; the text says why, as a sentence."""


def judged(parameters: str, exercises: Sequence[SubmittedExercise]) -> dict[str, Grade]:
    """Judge exercises with these parameters, and return the verdict on each exercise, by name.

    After an exercise that is not solved, or whose sandbox was ended, the next exercise gets a new sandbox.
    """
    verdicts = {}
    remaining = list(exercises)
    while remaining:
        new_verdicts = _run(parameters, remaining)
        verdicts.update(zip([exercise.name for exercise in remaining], new_verdicts, strict=False))
        remaining = remaining[len(new_verdicts) :]
    return verdicts


def _run(parameters, exercises):
    """Run exercises in one sandbox; return their verdicts, up to and including the first that is not solved."""
    verdicts = []
    key = secrets.token_hex()
    with _process([*sandbox.command_in_sandbox(), sys.executable, "-m", "helpers.grade.runner"]) as process:
        with suppress(BrokenPipeError), process.stdin:  # `lines.next` reports a sandbox that ends so early
            job = {"key": key, "parameters": parameters, "exercises": exercises}
            process.stdin.write(json.dumps(job).encode())
        lines = _Lines(process)
        try:
            while len(verdicts) < len(exercises) and all(verdict.solved for verdict in verdicts):
                verdicts.append(_verdict(lines.next(time.monotonic() + SECONDS), key, len(verdicts)))
        except _Ended as ended:
            verdicts.append(Grade(False, str(ended), finished=False))
    return verdicts


def _verdict(line, key, number):
    """Return the verdict on the exercise with this number from a line of the sandbox, whose signature must be right."""
    try:
        signature, solved, sentence = json.loads(line)
        signed = signature == sandbox.signature(key, number, solved, sentence)
    except (ValueError, TypeError, RecursionError):
        signed = False
    if not signed or type(solved) is not bool or type(sentence) is not str:
        raise _Ended("The answer attacked the process that judges it, and was ended.")
    return Grade(solved, sentence[: sandbox.LETTERS])


class _Lines:
    """The lines that a sandbox writes, read under its limits."""

    def __init__(self, process):
        self._process = process
        self._read = b""
        self._shared = psutil.virtual_memory().shared

    def next(self, deadline):
        """Return the next line; raise `_Ended` when no line comes before the deadline, or a limit is exceeded."""
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._read:
            if len(self._read) > _BYTES_OF_A_LINE:
                raise _Ended("The answer attacked the process that judges it, and was ended.")
            if time.monotonic() > deadline:
                raise _Ended(f"The answer took more than {SECONDS} s, and was ended.")
            if excess := _excess(self._process, self._shared):
                raise _Ended(f"The answer {excess}, and was ended.")
            if select.select([descriptor], [], [], _SECONDS_BETWEEN_LOOKS)[0]:
                received = os.read(descriptor, _BYTES_OF_A_LINE)
                if not received:
                    raise _Ended("The answer ended the process that judges it.")
                self._read += received
        line, _, self._read = self._read.partition(b"\n")
        return line


@contextmanager
def _process(command):
    """Start a sandbox, and end it with all its processes at the end of the block."""
    process = None
    try:
        with interrupted_later():  # an Interrupt could leave a started process behind
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        yield process
    finally:
        if process is not None:
            inside = _descendants(process.pid)
            process.kill()  # bubblewrap's parent; the other processes end with it, except one that has just started
            process.wait()
            process.stdout.close()
            for member in inside:
                with suppress(psutil.NoSuchProcess):
                    member.kill()


def _excess(process, shared):
    """Return which limit the sandbox has exceeded, as part of a sentence; an empty string when it is within its limits.

    `shared` is the number of bytes in files in memory, anywhere on the machine, when the sandbox started. If no process
    maps such a file, no process counts its memory.
    """
    inside = _descendants(process.pid)
    if len(inside) > PROCESSES:
        return f"started more than {PROCESSES} processes"
    in_files = psutil.virtual_memory().shared - shared
    if max(in_files, sum(map(_memory, inside))) > sandbox.MEMORY:
        return f"took more than {sandbox.MEMORY // 2**30} GiB of memory"
    return ""


def _memory(process):
    """Return the bytes of memory that a process uses; a page that processes share is divided among them."""
    try:
        return process.memory_full_info().pss
    except psutil.NoSuchProcess:  # it has just ended
        return 0
    except psutil.AccessDenied:  # bubblewrap runs as root; shared pages are left out
        info = process.memory_info()
        return info.rss - info.shared


def _descendants(pid):
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []
