"""The lines of docs/classroom.md by which root collects notebooks, run by root on the homes of real users."""

import os
import pwd
import re
import shutil
import subprocess

import pytest
from lesson_files import ROOT

TEACHER, LEARNER = f"t{os.getpid()}", f"l{os.getpid()}"
NOTEBOOK = "06_ring_all_reduce.ipynb"
MISSING = [name for name in ("useradd", "userdel", "runuser") if shutil.which(name) is None]

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root makes users"),
    pytest.mark.skipif(bool(MISSING), reason=f"this system has no {', '.join(MISSING)}"),
]


def lines():
    """Return the lines as the page prints them."""
    page = (ROOT / "docs" / "classroom.md").read_text()
    (block,) = [block for block in re.findall(r"^```\n(.*?)^```", page, re.M | re.S) if "/dev/stdin" in block]
    for name, value in {
        "TEACHER": TEACHER,
        "LEARNER": LEARNER,
        "NN_topic.ipynb": NOTEBOOK,
        "timeout 10": "timeout 1",
    }.items():
        block = block.replace(name, value)
    return block


@pytest.fixture(scope="module")
def home():
    """The folder of the notebooks in the home of a learner, a real user of this system, as the teacher is."""
    for user in (TEACHER, LEARNER):
        subprocess.run(["useradd", "--create-home", "--shell", "/bin/sh", user], check=True)
    learner = pwd.getpwnam(LEARNER)
    folder = os.path.join(learner.pw_dir, "torch-distributed-live", "notebooks")
    as_user(LEARNER, f"mkdir -p {folder}; chmod 700 {learner.pw_dir}")
    yield folder
    for user in (TEACHER, LEARNER):
        subprocess.run(["userdel", "--remove", user], check=True, capture_output=True)


def as_user(user, command):
    return subprocess.run(["runuser", "-u", user, "--", "sh", "-c", command], capture_output=True, text=True)


@pytest.fixture
def collected(home, tmp_path):
    """A function that runs a command of the learner's, collects the notebook, and returns its path."""
    place = tmp_path
    while place != place.parent:  # pytest's folders are root's alone
        place.chmod(place.stat().st_mode | 0o711)
        place = place.parent
    (tmp_path / "secret").write_text("for root alone")
    (tmp_path / "secret").chmod(0o600)

    def collect(command):
        notebook = os.path.join(home, NOTEBOOK)
        done = as_user(LEARNER, f"rm -f {notebook}; {command.format(notebook=notebook, secret=tmp_path / 'secret')}")
        assert done.returncode == 0, done.stderr
        subprocess.run(["sh", "-c", lines()], cwd=tmp_path, timeout=60, capture_output=True)
        return tmp_path / "folder" / LEARNER / NOTEBOOK

    return collect


def test_a_notebook_becomes_the_teachers_and_nobody_else_reads_it(collected):
    path = collected("echo answer > {notebook}")
    assert path.read_text() == "answer\n"
    for place, mode in ((path, 0o600), (path.parent, 0o700), (path.parent.parent, 0o700)):
        assert place.stat().st_uid == pwd.getpwnam(TEACHER).pw_uid
        assert place.stat().st_mode & 0o777 == mode
    assert as_user(TEACHER, f"cat {path}").stdout == "answer\n"
    assert as_user(LEARNER, f"cat {path}").returncode != 0


def test_a_link_hands_in_nothing_that_the_learner_may_not_read(collected):
    assert collected("ln -s {secret} {notebook}").read_text() == ""


def test_an_endless_file_is_cut(collected):
    assert collected("ln -s /dev/zero {notebook}").stat().st_size == 20 * 2**20


def test_a_pipe_that_nobody_writes_to_holds_nobody_up(collected):
    assert collected("mkfifo {notebook}").read_text() == ""
