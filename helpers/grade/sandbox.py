"""Where answers are run: they see the course, and change, reach and keep nothing.

Bubblewrap (https://github.com/containers/bubblewrap) gives them a file system that can only be read, a temporary folder
of their own, a network and process numbers of their own. When they are ended, everything that they have started is.
"""

import json
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]

SECONDS = 150  # for one exercise, its setup included: a check itself gives up after 40
MEMORY = 4 * 2**30  # bytes of all processes together; what ranks share counts for each of them
PROCESSES = 100
_DISK = 2**30  # bytes in the temporary folder
_SECONDS_BETWEEN_LOOKS = 0.25


def why_not() -> str:
    """Return what keeps this system from running a sandbox, nothing when it can."""
    if shutil.which("bwrap") is None:
        return (
            "grading runs what learners wrote, and needs bubblewrap to keep it from doing harm. "
            "It is there for Linux only; on Debian and Ubuntu: apt install bubblewrap"
        )
    tried = subprocess.run([*_sandbox([]), sys.executable, "-c", ""], capture_output=True, text=True)
    return f"bubblewrap does not work here: {tried.stderr.strip()}" if tried.returncode else ""


def judged(parameters: str, exercises: list, hidden: list[Path]) -> dict[str, tuple[bool, str]]:
    """Judge exercises in the sandbox, and return for each by its name whether it is solved, and a sentence.

    `exercises` are those of `helpers.grade.exercises`. The folders `hidden` look empty to the answers. An answer that
    takes more than its time, memory or number of processes is ended; the others are judged all the same.
    """
    verdicts = {}
    left = list(exercises)
    while left:
        told, end = _run({"parameters": parameters, "exercises": left}, hidden)
        verdicts.update(told)
        left = [exercise for exercise in left if exercise.name not in verdicts]
        if left:
            verdicts[left.pop(0).name] = False, end
    return verdicts


def _run(job, hidden):
    """Return the verdicts until all exercises are judged or one has to be ended, and why it was."""
    runner = [*_sandbox(hidden), sys.executable, "-m", "helpers.grade.runner"]
    with tempfile.TemporaryFile("w+") as errors:
        process = None
        try:
            with _interrupts_held_back():
                process = subprocess.Popen(
                    runner, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
                )
            lines = queue.Queue()
            threading.Thread(target=_read, args=(process.stdout, lines), daemon=True).start()
            process.stdin.write(json.dumps(job))
            process.stdin.close()
            return _listen(process, lines, len(job["exercises"]))
        finally:
            if process is not None:
                inside = _descendants(process.pid)
                process.kill()  # bubblewrap's parent: all others go with it, but for one that has just begun
                process.wait()
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


def _read(stream, lines):
    for line in stream:
        lines.put(line)


def _listen(process, lines, number):
    verdicts = {}
    deadline = time.monotonic() + SECONDS
    while len(verdicts) < number:
        try:
            name, solved, sentence = json.loads(lines.get(timeout=_SECONDS_BETWEEN_LOOKS))
            verdicts[name] = solved, sentence
            deadline = time.monotonic() + SECONDS
        except queue.Empty:
            excess = f"took more than {SECONDS} s" if time.monotonic() > deadline else _excess(process)
            if excess:
                return verdicts, f"The answer {excess}, and was ended."
            if process.poll() is not None and lines.empty():
                return verdicts, "The answer has ended the process that judges it."
    return verdicts, ""


def _excess(process):
    """Return what the sandbox has taken too much of, nothing when all is well."""
    inside = _descendants(process.pid)
    if len(inside) > PROCESSES:
        return f"started more than {PROCESSES} processes"
    memory = 0
    for member in inside:
        try:
            info = member.memory_info()
            memory += info.rss - info.shared
        except psutil.Error:  # it has just ended
            continue
    return f"took more than {MEMORY // 2**30} GiB of memory" if memory > MEMORY else ""


def _descendants(pid):
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


def _sandbox(hidden):
    """Return the command that runs another one in a sandbox."""
    command = ["bwrap", "--die-with-parent", "--new-session", "--unshare-all", "--ro-bind", "/", "/"]
    command += ["--dev", "/dev", "--proc", "/proc", "--size", str(_DISK), "--tmpfs", "/tmp"]
    for folder in {str(ROOT), sys.prefix}:
        command += ["--ro-bind", folder, folder]
    for folder in [ROOT / "notebooks", ROOT / "tests", *hidden]:
        command += ["--tmpfs", str(folder)]
    command += ["--ro-bind", str(ROOT / "notebooks/faulty"), str(ROOT / "notebooks/faulty")]  # which a lesson runs
    for module in sorted(ROOT.glob("notebooks/*.py")):  # which lessons import
        command += ["--ro-bind", str(module), f"/tmp/{module.name}"]
    command += ["--setenv", "TMPDIR", "/tmp", "--setenv", "HOME", "/tmp", "--setenv", "PYTHONPATH", str(ROOT)]
    return [*command, "--chdir", "/tmp"]
