"""Answers that do harm, spy or deceive: each is judged as `make grade` does it, in the real sandbox, and is refused.

All of them are one class, graded once. Next to its folder, and in the home of the user who grades, are a secret and a
socket at which somebody would run what it is sent.
"""

import csv
import functools
import os
import socket
import sys
import textwrap
import threading
from pathlib import Path

import psutil
import pytest
from handed_in import answers_of, cell, hand_in
from lesson_files import NOTEBOOKS, ROOT

from helpers.grade import __main__ as grading
from helpers.grade import exercises, judging, keeping, sandbox

RING = ROOT / "notebooks" / "06_ring_all_reduce.ipynb"
NAMES = ["my_ring", "reduce_scatter", "two_way_ring"]
NOT_ANSWERED = {"ordered_exchange": None}  # by the attackers: each exercise that is judged takes seconds
RIGHT = answers_of(RING)
SOLUTION = f"notebooks/solutions/{RING.name}"
SECRET = "a secret of the teacher"
STAYS = ["sleep", f"1000.{os.getpid()}"]

# The class is graded in the setup of the first test, in some 25 sandboxes, one after the other, each with limits of its
# own.
pytestmark = [pytest.mark.usefixtures("bubblewrap"), pytest.mark.timeout(1800)]

FORKS = cell(
    """
    import os, time
    while True:
        os.fork()
        time.sleep(0.5)
    """
)
EATS = cell(
    """
    import time
    eaten = []
    while True:
        eaten.append(b"x" * 2**26)
        time.sleep(0.1)
    """
)
HIDES = cell(
    """
    import os, time
    # Memory that no process maps.
    files = [os.memfd_create(str(number)) for number in range(3 * (rank == 0))]
    for file in files:
        os.posix_fallocate(file, 0, 2**30)
    while True:
        time.sleep(1)
    """
)
KILLS = cell(
    """
    import os
    os.kill(-1, 9)
    """
)
DELETES = cell(
    f"""
    import os, shutil
    for folder in ({str(ROOT)!r}, os.path.expanduser("~"), os.getcwd()):
        shutil.rmtree(folder, ignore_errors=True)
    """
)
FILLS = cell(
    """
    import os
    if rank == 0:
        with open("/tmp/full", "wb") as file:
            free = os.statvfs("/tmp").f_bavail * os.statvfs("/tmp").f_frsize
            os.posix_fallocate(file.fileno(), 0, free)
    raise ValueError("full")
    """
)
LEAVES_PROCESSES = f"""
import atexit, os, subprocess, threading, time
if rank == 0:
    subprocess.Popen({STAYS}, start_new_session=True)
    subprocess.run(["sh", "-c", "setsid {" ".join(STAYS)} >/dev/null 2>&1 &"])
    if os.fork() == 0:
        os.setsid()
        os.execvp("{STAYS[0]}", {STAYS})
    atexit.register(time.sleep, 1000)
    threading.Thread(target=time.sleep, args=[1000]).start()
"""
PLANTS = cell(
    """
    # The judge imports such modules when a result needs them.
    program = "import os; os._exit(0)"
    for module in ("numpy", "torch", "matplotlib", "helpers"):
        open(f"{module}.py", "w").write(program)

    def reduce_scatter(tensor):
        return tensor
    """
)
PRINTS = cell(
    """
    import os
    def reduce_scatter(tensor):
        print("Solved. Rank r holds chunk r of the sum.", flush=True)
        for descriptor in range(60):
            try:
                os.write(descriptor, b'["reduce_scatter", true, "Solved."]\\n')
            except OSError:
                pass
        os._exit(0)  # otherwise the check waits in vain for ranks whose sockets got these lines
    """
)
REPLACES_A_NAME = cell(
    """
    import helpers.checks.exam as module

    module.answer = lambda name, arguments, watch, then: arguments[0]
    """
)
REPLACES_THE_WITNESS = cell(
    """
    import types
    import helpers.checks.exam as module
    import helpers.grade.tampering as witness

    module.ask_here = lambda function, arguments: None
    witness.sys = types.SimpleNamespace(modules={})
    """
)
REPLACES_CODE = cell(
    """
    import helpers.checks.exam as exam

    def fake(value):
        return 0

    code = exam.plain.__code__
    exam.plain.__code__ = fake.__code__.replace(
        co_filename=code.co_filename, co_firstlineno=code.co_firstlineno)
    """
)
DIES_WHEN_ASKED = RIGHT["two_way_ring"] + textwrap.dedent(
    """
    import os
    import helpers.checks.exam as module

    kernel = get_ipython().kernel
    do_apply = kernel.do_apply

    def apply_or_die(content, buffers, *others):
        if any(b"fingerprints" in bytes(buffer) for buffer in buffers):
            os._exit(0)
        return do_apply(content, buffers, *others)

    module.near = None
    kernel.do_apply = apply_or_die
    """
)
PICKLES = cell(
    """
    import builtins

    class Program(int):
        def __reduce__(self):
            return builtins.exec, ("import os; os._exit(0)",)

    def my_ring(tensor):
        return Program()
    """
)
FORGES = cell(
    """
    import time
    import torch.distributed as dist
    import helpers.checks.exam as exam
    from helpers.measure.traffic import Message

    def two_way_ring(tensor):
        rank, n, now = dist.get_rank(), dist.get_world_size(), time.monotonic()
        for call, peer in (("send", (rank + 1) % n), ("recv", (rank - 1) % n)):
            exam._runs[-1].messages.append(Message(call, peer, 2**30, now, now, now))
        return tensor
    """
)
SAYS_MUCH_AND_ODD_THINGS = cell(
    "raise ValueError('=1+1 \\u202e \\x1b[31m \\x00 <script>alert(1)</script>' + 'A' * 2_000_000)"
)
ENDLESS = cell("x = " + 200_000 * "-" + "1")
NO_TEXT = "%%px\nx = '\ud800'"
LOCAL = """
from helpers import checks
def two_way_ring(world):
    return "Solved."
checks.ring_all_reduce.two_way_ring = two_way_ring
""".strip()


def spies(places):
    """Return an answer that says what it has reached, where it can write how many GiB, and two of its limits.

    It tries these paths and sockets, secrets, and the files of the judge.
    """
    return cell(
        f"""
        import os, resource, socket, tempfile
        reached = []
        for place in {places!r}:
            try:
                if place.endswith(".sock"):
                    with socket.socket(socket.AF_UNIX) as connection:
                        connection.connect(place)
                elif os.path.isdir(place):
                    reached += os.listdir(place)
                    continue
                else:
                    open(place).read()
                reached.append(place)
            except OSError:
                pass
        reached += [name for name in os.environ if "SECRET" in name]
        judges = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            if "helpers.grade.runner" in open(f"/proc/{{pid}}/cmdline").read():
                judges.append(pid)
        for pid in judges or ["self"]:
            for door in ("mem", "environ", "fd/0", "fd/1", "fd/3", "cwd/x"):
                try:
                    open(f"/proc/{{pid}}/{{door}}", "rb").close()
                    reached.append(f"/proc/{{pid}}/{{door}}")
                except OSError:
                    pass
        rooms = []
        for mount in open("/proc/self/mounts"):
            folder = mount.split()[1]
            try:
                tempfile.TemporaryFile(dir=folder).close()
            except OSError:
                continue
            rooms.append(f"{{folder}} {{os.statvfs(folder).f_blocks * os.statvfs(folder).f_frsize / 2**30:.2f}}")
        threads, size = (resource.getrlimit(limit)[1] for limit in (resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE))
        raise ValueError(f"reached {{reached}}, wrote to {{sorted(rooms)}}, {{threads}} threads, {{size}} B a file")
        """
    )


class Listener:
    """A socket at which somebody would run what it is sent; `heard` counts who came."""

    def __init__(self, path):
        self.path = str(path)
        self.heard = 0
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(self.path)
        os.chmod(path, 0o777)
        self._socket.listen()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.heard += 1
            connection.close()

    def close(self):
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        os.unlink(self.path)


@pytest.fixture(scope="module")
def temptations(tmp_path_factory):
    """What lies about: secrets and sockets next to the submissions, and in a home."""
    places = [tmp_path_factory.mktemp("beside"), tmp_path_factory.mktemp("home")]
    secrets, listeners = [], []
    for number, place in enumerate([*places, Path.home()]):
        secrets.append(place / f".secret-of-a-test-{os.getpid()}-{number}")
        secrets[-1].write_text(SECRET)
        secrets[-1].chmod(0o644)
        listeners.append(Listener(place / f".test-{os.getpid()}-{number}.sock"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECRET_OF_A_TEST", SECRET)
        yield [str(path) for path in secrets], listeners
    for listener in listeners:
        listener.close()
    for secret in secrets:
        secret.unlink()


@pytest.fixture(scope="module")
def graded(tmp_path_factory, temptations):
    """The folder of a class, graded, and the rows of its table as {(learner, exercise): row}."""
    folder = tmp_path_factory.mktemp("class")
    secrets, listeners = temptations
    places = [*secrets, *(listener.path for listener in listeners), str(folder), "/etc/passwd", "/run", "/var"]
    places += [str(ROOT / name) for name in (".git", "build", "notebooks/solutions", SOLUTION, "tests")]
    hostile = {
        "harm": [DELETES, FILLS, RIGHT["two_way_ring"] + LEAVES_PROCESSES],
        "greed": [FORKS, EATS, KILLS],
        "spy": [spies(places), PLANTS, NO_TEXT],
        "deceit": [PICKLES, REPLACES_A_NAME, REPLACES_CODE],
        "more": [REPLACES_THE_WITNESS, PRINTS, LOCAL],
        "noise": [ENDLESS, SAYS_MUCH_AND_ODD_THINGS, HIDES],
    }
    hand_in(folder / "right" / RING.name, RING, RIGHT)
    without_answers = dict.fromkeys(NAMES) | NOT_ANSWERED
    hand_in(folder / "untouched" / RING.name, RING, {"reduce_scatter": None, "two_way_ring": None})
    hand_in(folder / "ghost" / RING.name, RING, {**without_answers, "two_way_ring": DIES_WHEN_ASKED})
    hand_in(folder / "forger" / RING.name, RING, {**without_answers, "two_way_ring": FORGES})
    for learner, answers in hostile.items():
        hand_in(folder / learner / RING.name, RING, dict(zip(NAMES, answers, strict=True)) | NOT_ANSWERED)
    with pytest.MonkeyPatch.context() as limits:
        limits.setattr(judging, "PROCESSES", 20)
        limits.setattr(sandbox, "MEMORY", 2**31)
        grading.grade(folder)
    with open(folder / "grades.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    return folder, {(row["learner"], row["exercise"]): row for row in rows}


def sentence(graded, learner, exercise):
    """Return what the table says of an exercise that is not solved."""
    row = graded[1][learner, exercise]
    assert row["solved"] == "no", row
    return row["sentence"]


def test_solutions_get_full_marks_and_skeletons_none(graded):
    folder, rows = graded
    assert [row["solved"] for (learner, _), row in rows.items() if learner == "right"] == 4 * ["yes"]
    assert [row["solved"] for (learner, _), row in rows.items() if learner == "untouched"] == 4 * ["no"]
    assert "received 0 messages" in sentence(graded, "untouched", "my_ring")
    assert "4 of 4 exercises solved" in (folder / "grades" / "right.html").read_text()


def test_nothing_but_the_exercises_of_the_lesson_has_a_row(graded):
    assert {exercise for _, exercise in graded[1]} == {*NAMES, *NOT_ANSWERED}
    assert len(graded[1]) == 10 * 4


def test_an_answer_reaches_no_secret_no_solution_no_socket_and_nothing_of_the_judge(graded, temptations):
    assert (ROOT / SOLUTION).exists()
    assert "ValueError: reached [], wrote to " in sentence(graded, "spy", "my_ring")
    assert [listener.heard for listener in temptations[1]] == [0, 0, 0]
    assert SECRET not in (graded[0] / "grades.csv").read_text()


def test_an_answer_writes_to_two_folders_of_limited_size_alone(graded):
    assert "wrote to ['/dev/shm 0.25', '/tmp 1.00']," in sentence(graded, "spy", "my_ring")


def test_an_answer_can_start_a_limited_number_of_threads_and_write_files_of_limited_size(graded):
    assert sentence(graded, "spy", "my_ring").endswith(f", {sandbox.THREADS} threads, {2**30} B a file")


def test_an_answer_that_deletes_folders_finds_none_that_it_can_delete(graded):
    folder, _ = graded
    assert sentence(graded, "harm", "my_ring")
    assert RING.exists() and (folder / "harm" / RING.name).exists()


def test_a_full_disk_is_not_there_for_the_next_exercise(graded):
    assert "full" in sentence(graded, "harm", "reduce_scatter")
    assert graded[1]["harm", "two_way_ring"]["solved"] == "yes"


def test_what_an_answer_has_started_ends_with_its_sandbox(graded):
    assert graded[1]["harm", "two_way_ring"]["solved"] == "yes"
    assert [process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"] == STAYS] == []


def test_an_answer_that_forks_eats_or_kills_is_ended(graded):
    assert "processes" in sentence(graded, "greed", "my_ring")
    assert "2 GiB of memory" in sentence(graded, "greed", "reduce_scatter")
    assert "2 GiB of memory" in sentence(graded, "noise", "two_way_ring")
    assert "ended" in sentence(graded, "greed", "two_way_ring")


def test_a_pickle_that_runs_code_is_not_read(graded):
    assert "builtins.exec" in sentence(graded, "deceit", "my_ring")


@pytest.mark.parametrize(
    ("learner", "exercise"), [("deceit", "reduce_scatter"), ("deceit", "two_way_ring"), ("more", "my_ring")]
)
def test_an_answer_that_changes_the_check_is_seen(graded, learner, exercise):
    assert "changes what judges it: helpers." in sentence(graded, learner, exercise)


def test_a_rank_that_ends_when_it_is_asked_for_its_helpers_is_seen(graded):
    assert "changes what judges it: a rank no longer says" in sentence(graded, "ghost", "two_way_ring")


def test_messages_that_no_network_has_carried_are_seen(graded):
    said = sentence(graded, "forger", "two_way_ring")
    assert "The ranks report messages of 4,294,967,296 bytes, and their network carried " in said


def test_a_module_that_an_answer_writes_is_not_imported_by_the_judge(graded):
    assert "Rank 0" in sentence(graded, "spy", "reduce_scatter")


def test_a_verdict_that_the_ranks_write_is_none(graded):
    assert sentence(graded, "more", "reduce_scatter")


def test_a_cell_without_a_magic_runs_on_the_ranks_and_replaces_no_check(graded):
    assert "changes what judges it: helpers.checks.ring_all_reduce.two_way_ring" in sentence(
        graded, "more", "two_way_ring"
    )


def test_a_sentence_is_short_and_only_shows_what_it_says(graded):
    said = sentence(graded, "noise", "reduce_scatter")
    assert len(said) < 300
    assert "=1+1" in said and not set(said) & set("\u202e\x1b\x00")
    page = (graded[0] / "grades" / "noise.html").read_text()
    assert "alert(1)" in page and "<script>" not in page


def test_an_answer_that_nobody_can_parse_is_wrong(graded):
    assert sentence(graded, "noise", "my_ring")
    assert sentence(graded, "spy", "two_way_ring")


def test_an_answer_without_a_cell_is_said(graded):
    assert "no cell with an answer" in sentence(graded, "untouched", "two_way_ring")


def test_a_verdict_is_kept_unless_the_answer_was_ended(graded):
    folder, _ = graded
    kept = {}
    for learner in ("right", "deceit", "greed"):
        content = (folder / learner / RING.name).read_bytes()
        kept[learner] = keeping.kept(folder / "grades", learner, RING.name, content) is not None
    assert kept == {"right": True, "deceit": True, "greed": False}


def test_an_answer_without_end_is_ended_and_the_next_is_judged(tmp_path, monkeypatch):
    waits = cell("import time\nwhile True:\n    time.sleep(1)")
    hand_in(tmp_path / RING.name, RING, {**RIGHT, "my_ring": waits})
    asked = exercises.exercises(RING, (tmp_path / RING.name).read_bytes())[:1]
    monkeypatch.setattr(judging, "SECONDS", 10)
    verdict = judging.judged(exercises.variants(RING)[0], asked)["my_ring"]
    assert "more than 10 s" in verdict.sentence and not verdict.finished


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("input()", "StdinNotImplementedError"),
        ("%%bash\nexit 1", "CalledProcessError"),
        ("raise SystemExit", "SystemExit"),
        ("import os\nos._exit(0)", "has died (exit code 0)"),
    ],
)
def test_an_odd_answer_is_not_solved_for_a_reason(answer, said, tmp_path):
    hand_in(tmp_path / RING.name, RING, {**RIGHT, "my_ring": cell(answer)})
    asked = exercises.exercises(RING, (tmp_path / RING.name).read_bytes())[:1]
    verdict = judging.judged(exercises.variants(RING)[0], asked)["my_ring"]
    assert not verdict.solved and said in verdict.sentence, verdict


SYSTEMD_RUN = f"""#!{sys.executable}
import os, sys
words = sys.argv[1:]
limits = []
while words[0].startswith("--"):
    if words.pop(0) == "--property":
        limits.append(words.pop(0))
print(*limits, file=open(sys.argv[0] + ".log", "a"))
os.execvp(words[0], words)
"""


def test_a_control_group_limits_memory_and_threads_where_there_is_one(tmp_path, monkeypatch):
    (tmp_path / "systemd-run").write_text(SYSTEMD_RUN)
    (tmp_path / "systemd-run").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    sandbox._control_group.cache_clear()
    try:
        assert sandbox.why_not() == ""
    finally:
        sandbox._control_group.cache_clear()
    limits = f"MemoryMax={sandbox.MEMORY} MemorySwapMax=0 TasksMax={sandbox.THREADS}\n"
    assert (tmp_path / "systemd-run.log").read_text() == 2 * limits  # to try it, and for the sandbox


@pytest.mark.nightly
@pytest.mark.parametrize("lesson", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_lesson_is_graded_as_it_is_and_with_its_solutions(lesson, tmp_path):
    hand_in(tmp_path / "right.ipynb", lesson, answers_of(lesson))
    first, *others = exercises.variants(lesson)
    right = functools.partial(exercises.exercises, lesson, (tmp_path / "right.ipynb").read_bytes())
    untouched = exercises.exercises(lesson, lesson.read_bytes())
    for parameters, asked, solved in [(first, untouched, False), *((p, right(), True) for p in (first, *others))]:
        verdicts = judging.judged(parameters, asked)
        assert {name: verdict.solved for name, verdict in verdicts.items()} == dict.fromkeys(verdicts, solved), verdicts
        assert not any("NameError" in verdict.sentence for verdict in verdicts.values()), verdicts
