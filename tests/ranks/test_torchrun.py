"""torchrun for the script of a notebook: its output by rank, on the loopback only, and nothing left in the end."""

import os
import signal
import sys
from multiprocessing.util import get_temp_dir
from pathlib import Path

import psutil
import pytest
from lesson_files import at_night
from live import left_after, run_command, wait_until

import helpers.torchrun
from helpers import WorldError
from helpers.torchrun import Job, hanging, torchrun

SCRIPT = """
from datetime import timedelta
from pathlib import Path
import torch.distributed as dist
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
dist.barrier()
tables = [Path("/proc/self/net", name).read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
rows = [row.split() for table in tables for row in table]
print(*{local.split(":")[0] for _, local, _, state, *_ in rows if state == "0A"})
dist.barrier()
"""
IN_HEXADECIMAL = {"0100007F": "127.0.0.1", "00000000000000000000000001000000": "::1"}


def test_the_output_of_each_rank_in_their_order():
    assert torchrun("import os; print(os.environ['RANK'])", 3) == ["0\n", "1\n", "2\n"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who listens in files of /proc")
def test_nothing_listens_off_the_loopback():
    for said in torchrun(SCRIPT, 2):
        assert "127.0.0.1" in [IN_HEXADECIMAL[address] for address in said.split()]


def test_a_script_that_takes_too_long(monkeypatch):
    monkeypatch.setattr(helpers.torchrun, "_SECONDS_TO_RUN", 1)
    with pytest.raises(WorldError, match="^The script was not done after 1 s.$"):
        torchrun("import time; time.sleep(1000)", 1)


def test_what_takes_too_long_is_ended_with_all_that_it_has_started(tmp_path):
    pids = tmp_path / "pids"
    # It imports no torch, which may take longer on a busy machine than it is given.
    script = f"""
import os, subprocess, time
other = subprocess.Popen(["sleep", "1000"], start_new_session=True)
open({str(pids)!r}, "a").write(f"{{os.getpid()}} {{other.pid}}")
time.sleep(1000)
"""
    run_command([sys.executable, "-c", "pass"], dict(os.environ), tmp_path / "log", 60)  # the fork server is there
    assert run_command([sys.executable, "-c", script], dict(os.environ), tmp_path / "log", 8) is None
    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) == 2
    assert wait_until(lambda: not any(map(psutil.pid_exists, started)), SECONDS_TO_VANISH)


def test_a_script_that_fails_says_why():
    with pytest.raises(WorldError, match=r"^The script failed under torchrun:[\s\S]*ZeroDivisionError"):
        torchrun("1 / 0", 1)


def test_the_report_names_the_rank_that_failed_first():
    script = "import os, sys, time; time.sleep(20 * (os.environ['RANK'] == '0')); sys.exit(3)"
    job = Job(script, 2)
    assert job.wait(60)
    report = job.report()
    job.end()
    assert "\nscript.py FAILED\n" in report
    cause = report.partition("Root Cause")[2]
    assert "rank      : 1 (local_rank: 1)" in cause and "exitcode  : 3 " in cause


# It imports no torch, so that it starts quickly; it writes where a temporary file goes, and starts a process that tries
# to get away. It prints in the end, when all that is there.
HANGS = """
import os, subprocess, tempfile, time
tempfile.mkdtemp(prefix="torchelastic_")
subprocess.Popen(["sleep", "1000"], start_new_session=True)
print("rank", os.environ["RANK"], os.environ.get("COLOUR"), flush=True)
time.sleep(1000)
"""
SECONDS_TO_VANISH = 20


@pytest.fixture
def job():
    job = Job(HANGS, 2, COLOUR="blue")
    job.wait_for("rank")
    yield job
    job.end()


def family(job):
    """Return the ranks of a job and what they have started."""
    ranks = [psutil.Process(pid) for pid in job.pids()]
    return ranks + [child for rank in ranks for child in rank.children(recursive=True)]


def test_a_job_that_hangs_can_be_looked_at(job):
    assert [job.log(rank) for rank in range(2)] == ["rank 0 blue\n", "rank 1 blue\n"]
    assert [psutil.Process(pid).environ()["RANK"] for pid in job.pids()] == ["0", "1"]
    assert not job.wait(0.1) and job.exit_code is None and job.report() == ""
    assert job.folder.joinpath("script.py").read_text() == HANGS


def test_a_job_that_hangs_is_taken_again_while_its_text_is_recent():
    job = hanging(HANGS, 1, "rank", 60)
    assert job.log(0) == "rank 0 None\n" and hanging(HANGS, 1, "rank", 60) is job
    late = hanging(HANGS, 1, "rank", 0)
    assert late is not job and late.log(0) == "rank 0 None\n"
    red = hanging(HANGS, 1, "rank", 60, COLOUR="red")
    assert red is not late and red.log(0) == "rank 0 red\n"
    red.end()
    assert hanging(HANGS, 1, "rank", 60, COLOUR="red") is not red


@pytest.mark.parametrize("end", [lambda job: job.end(), lambda job: Job("", 1).end()], ids=["end", "the next job"])
def test_nothing_is_left_of_a_job(job, end):
    processes = family(job)
    assert len(processes) == 4
    end(job)
    assert left_after(processes, SECONDS_TO_VANISH) == [] and not job.folder.exists() and job.pids() == []
    assert list(Path(get_temp_dir()).glob("job-*")) == []


def test_a_job_whose_time_is_out_is_ended_and_can_be_read(monkeypatch):
    monkeypatch.setattr(helpers.torchrun, "_SECONDS_TO_RUN", 15)  # enough to start, on a busy machine too
    job = Job(HANGS, 1)
    job.wait_for("rank")
    processes = family(job)
    assert job.wait(60) and job.exit_code is None
    assert left_after(processes, SECONDS_TO_VANISH) == [] and job.log(0) == "rank 0 None\n"
    job.end()
    assert not job.folder.exists()


def test_a_job_that_fails_is_reported():
    job = Job("import os, sys; sys.exit(7 * (os.environ['RANK'] == '1'))", 2)
    assert job.wait(60) and job.exit_code == 1
    assert "rank      : 1 (local_rank: 1)\n  exitcode  : 7 " in job.report() and str(job.folder) not in job.report()
    with pytest.raises(WorldError, match="^Not every rank has printed 'ready':"):
        job.wait_for("ready")
    job.end()


def test_what_a_job_prints_in_the_end_is_found(monkeypatch):
    job = Job("print('ready')", 1)
    wait = job.wait
    monkeypatch.setattr(job, "wait", lambda seconds: wait(60))  # on a busy machine a job may end between two looks
    job.wait_for("ready")
    job.end()


ENDS = {
    "killed": lambda notebook: os.kill(notebook.pid, signal.SIGKILL),
    "killed with its process group": lambda notebook: os.killpg(notebook.pid, signal.SIGKILL),
    "shut down": lambda notebook: notebook.close(),
}


@pytest.mark.parametrize("end", [at_night("killed"), "killed with its process group", "shut down"])
def test_a_job_does_not_outlive_the_kernel(notebook, end):
    notebook.run(f"from helpers.torchrun import Job\njob = Job({HANGS!r}, 2)\njob.wait_for('rank')")
    folder, *pids = notebook.run("print(job.folder, *job.pids())").split()
    started = [process for pid in pids for process in [psutil.Process(int(pid)), *psutil.Process(int(pid)).children()]]
    started += notebook.processes()[1:]
    assert len(started) >= 6 and os.path.exists(folder)
    ENDS[end](notebook)
    assert left_after(started, SECONDS_TO_VANISH) == []
    assert wait_until(lambda: not os.path.exists(os.path.dirname(folder)), SECONDS_TO_VANISH)


def test_an_interrupt_while_a_script_runs_leaves_nothing(notebook):
    notebook.run("import helpers.torchrun\nhelpers.torchrun.Job('', 1).end()")
    all_hang = notebook.sees("all('rank' in helpers.torchrun._current.log(rank) for rank in range(2))")
    said = notebook.run(f"helpers.torchrun.torchrun({HANGS!r}, 2)", interrupt_when=all_hang)
    assert "KeyboardInterrupt" in said
    folder = notebook.run("from multiprocessing.util import get_temp_dir\nprint(get_temp_dir())").strip()
    assert wait_until(lambda: list(Path(folder).glob("job-*")) == [], SECONDS_TO_VANISH)
    names = [process.name() for process in notebook.processes()]
    assert "sleep" not in names
