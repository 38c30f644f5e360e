"""What runs in the sandbox: the exercises of one submission, on ranks of their own.

It reads a job from standard input, as JSON: `parameters`, the code of the lesson's parameters, and `exercises`, a list
of [name, cells of the setup, cells of the answer]. It writes a line of JSON for each exercise, as it is judged: its
name, whether it is solved, and the sentence of the check.
"""

import json
import os
import resource
import sys

from helpers.checks.judging import Verdict
from helpers.grade.places import changed

_THREADS = 1000  # of all processes of the sandbox together; the system does not hold root to it


def main() -> None:
    """Judge the exercises of the job."""
    resource.setrlimit(resource.RLIMIT_NPROC, (_THREADS, _THREADS))
    job = json.load(sys.stdin)
    verdicts = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())  # what answers print is no verdict

    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    ready = []  # the cells that the ranks have run
    for name, setup, answer in job["exercises"]:
        if setup[: len(ready)] != ready:
            ready = []
        solved, sentence = _judge(shell, name, _with_parameters(setup, job["parameters"])[len(ready) :], answer)
        ready = setup if solved else []  # after a wrong answer nobody knows what state the ranks are in
        print(json.dumps([name, solved, sentence]), file=verdicts, flush=True)
    if "world" in shell.user_ns:
        shell.user_ns["world"].stop()


def _with_parameters(setup, parameters):
    return [parameters, *setup[1:]]


def _judge(shell, name, setup, answer):
    for cell in setup:
        if error := _run(shell, cell).error_in_exec:
            return False, f"A cell of the lesson that the answer needs raised {_first_line(error)}"
    for cell in answer:
        ran = _run(shell, cell)
        if error := ran.error_before_exec or ran.error_in_exec:
            return False, f"The cell of the answer raised {_first_line(error)}"
    verdict = _run(shell, f"checks.{name}(world)")
    if function := changed(shell.user_ns["world"]):
        return False, f"The answer changes what judges it: {function}."
    if not isinstance(verdict.result, Verdict):
        return False, f"The check could not judge this answer: {_first_line(verdict.error_in_exec)}"
    return verdict.result.passed, verdict.result.message


def _run(shell, cell):
    shell.showtraceback = lambda *arguments, **options: None
    return shell.run_cell(cell)


def _first_line(error):
    # ipyparallel tells of the first rank's error; the others' are mostly the same.
    if errors := getattr(error, "elist", None):
        kind, text, *_ = errors[0]
        return f"{kind}: {text}".splitlines()[0]
    return f"{type(error).__name__}: {error}".splitlines()[0]


if __name__ == "__main__":
    main()
