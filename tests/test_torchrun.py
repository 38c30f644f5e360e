"""torchrun for the script of a notebook: its output by rank, on the loopback only."""

import os
import sys

import psutil
import pytest
from live import wait_until

import helpers.torchrun
from helpers import WorldError
from helpers.ranks.host import run_command
from helpers.torchrun import summary_of_failure, torchrun

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
    assert wait_until(lambda: not any(map(psutil.pid_exists, started)), 5)


def test_a_script_that_fails_says_why():
    with pytest.raises(WorldError, match=r"^The script failed under torchrun:[\s\S]*ZeroDivisionError"):
        torchrun("1 / 0", 1)


def test_the_summary_names_the_rank_that_failed_first():
    script = "import os, sys, time; time.sleep(20 * (os.environ['RANK'] == '0')); sys.exit(3)"
    summary = summary_of_failure(script, 2)
    assert "\nscript.py FAILED\n" in summary
    cause = summary.partition("Root Cause")[2]
    assert "rank      : 1 (local_rank: 1)" in cause and "exitcode  : 3 " in cause


def test_there_is_no_summary_of_a_script_that_works():
    with pytest.raises(WorldError, match="^The script has not failed.$"):
        summary_of_failure("", 1)
