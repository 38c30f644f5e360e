"""Run the exercises of one submission in the sandbox, on ranks of their own.

`helpers.grade.judging` starts this program, which calls the same checks as a notebook. But a check does not run on the
ranks here: `main` makes `helpers.checks.judging` use `helpers.grade.outside.examine`.

The program reads a job from standard input, as JSON: `parameters`, the code of the lesson's parameters, which replaces
the first cell of each setup; `exercises`, a list of [name, cells of the setup, cells of the answer, topic of the
lesson]; and `key`, a word that only this process and its parent know. For each exercise, in this order, it writes a
line of JSON: a signature made with the key, whether the exercise is solved, and the sentence of the check. It ends
after the first exercise that is not solved, because such an answer may leave the ranks in any state.
"""

import ctypes
import json
import os
import resource
import sys

from IPython.core.interactiveshell import InteractiveShell

from helpers.grade import plain
from helpers.grade.sandbox import LETTERS, THREADS, signature
from helpers.grade.tampering import changed, fingerprints

_BYTES_OF_A_FILE = 2**30
_LETTERS_OF_AN_ERROR = 200
_SECONDS_TO_ANSWER = 20
_PR_SET_DUMPABLE = 4  # see prctl(2)


def main() -> None:
    """Judge the exercises of the job."""
    job = json.load(sys.stdin)
    verdicts = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    _close_doors()

    # Imported after pickle has been replaced, because jupyter_client keeps the `pickle.loads` of its import.
    from helpers.checks import judging
    from helpers.grade.outside import examine

    judging.LETTERS_OF_AN_ERROR = _LETTERS_OF_AN_ERROR
    judging.examine = examine

    judge = _Judge(InteractiveShell.instance(), judging.killed)
    for number, (name, setup, answer, topic) in enumerate(job["exercises"]):
        solved, sentence = judge.verdict(topic, name, [job["parameters"], *setup[1:]], answer)
        sentence = sentence[:LETTERS]
        line = json.dumps([signature(job["key"], number, solved, sentence), solved, sentence])
        print(line, file=verdicts, flush=True)
        if not solved:
            break
    judge.stop()


def _close_doors():
    """Keep answers from reaching this process through its files, its memory, a pickle, or a module that they write."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # also keeps the output of answers apart from the verdicts
        os.dup2(nowhere, stream)
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    plain.read_nothing_else()
    sys.path[:] = [folder for folder in sys.path if folder not in ("", os.getcwd())]
    for limit, most in (
        (resource.RLIMIT_NPROC, THREADS),  # the system does not enforce this limit for root
        (resource.RLIMIT_FSIZE, _BYTES_OF_A_FILE),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (most, most))


class _Judge:
    """A runner of cells, which remembers the setup of the ranks, and fingerprints of their helpers before any answer.

    `killed` has the process ids of the ranks that a check has killed; no other rank may be missing afterwards.
    """

    def __init__(self, shell, killed):
        self._shell = shell
        self._killed = killed
        self._shell.showtraceback = lambda *arguments, **options: None
        self._ready = []
        self._fingerprints = None
        self._pids = None

    def verdict(self, topic, name, setup, answer):
        """Run the setup, the answer and the check; return whether the exercise is solved, and a sentence."""
        if setup[: len(self._ready)] != self._ready:
            self._ready = []
        for cell in setup[len(self._ready) :]:
            if error := self._error_of(cell):
                return False, f"A cell of the lesson that the answer needs raised {_say(error)}"
            if self._world and self._world.pids != self._pids:  # new ranks, which have run no answer yet
                lesson = [f"helpers.checks.{topic}", "helpers.grade.outside"]
                self._fingerprints = self._world.view.apply_sync(fingerprints, load=lesson)[0]
                self._pids = self._world.pids
        self._ready = setup
        for cell in answer:
            if error := self._error_of(cell):
                return False, f"The cell of the answer raised {_say(error)}"
        execution = self._shell.run_cell(f"checks.{topic}.{name}(world)")
        if plain.refused:
            return False, (
                f"A rank sent {plain.refused[0][:_LETTERS_OF_AN_ERROR]}. Expected: numbers, text, lists, dictionaries, "
                "tensors or arrays. Let the answer return one of these."
            )
        passed, message = getattr(execution.result, "passed", None), getattr(execution.result, "message", None)
        if name := self._changed(passed):
            return False, f"The answer changes what judges it: {name}."
        if not (type(passed) is bool and type(message) is str):
            return False, f"The check could not judge this answer: {_say(execution.error_in_exec)}"
        return passed, message

    def stop(self):
        """End the ranks."""
        if self._world:
            self._world.stop()

    @property
    def _world(self):
        return self._shell.user_ns.get("world")

    def _error_of(self, cell):
        try:
            ran = self._shell.run_cell(cell)
        except Exception as error:  # IPython itself fails on invalid text
            return error
        return ran.error_before_exec or ran.error_in_exec

    def _changed(self, passed):
        """Return the first name in the helpers that a rank has changed, an empty string if no rank changed any."""
        if not passed and any(state.state != "idle" for state in self._world.where()):
            return ""  # the check has refused this answer in any case
        fresh = self._world.pids != self._pids  # A check may restart the ranks; otherwise no module may be missing.
        asked = [rank for rank, pid in enumerate(self._world.pids) if pid not in self._killed]
        try:
            view = self._world.view.client[asked]
            modules = list(self._fingerprints)
            answer = view.apply_async(fingerprints, modules, load=modules if fresh else [])
            for after in answer.get(_SECONDS_TO_ANSWER):
                if name := changed(self._fingerprints, after):
                    return name
        except Exception:  # a rank died, did not answer in time, raised an error, or sent an invalid answer
            return "a rank no longer says which helpers it has"
        return ""


def _say(error):
    """Return the type of an error, and the beginning of its text."""
    kind, text = type(error).__name__, str(error)
    # Report the error of the first rank; the errors of the other ranks are mostly the same.
    if errors := getattr(error, "elist", None):
        kind, text, *_ = errors[0]
    return f"{kind}: {text.splitlines()[0] if text else ''}"[: len(kind) + 2 + _LETTERS_OF_AN_ERROR]


if __name__ == "__main__":
    main()
