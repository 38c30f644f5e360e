"""Every part of ipyparallel and ipykernel that is replaced is still there."""

import _thread
import inspect
import multiprocessing
import os
import re
import shutil
import subprocess
import threading
import time
from pathlib import Path

import ipyparallel.controller.app
import ipyparallel.engine.app
import pytest
import traitlets
from ipykernel.iostream import OutStream
from ipyparallel.client.magics import ParallelMagics
from ipyparallel.controller import heartmonitor
from ipyparallel.controller.app import IPController
from ipyparallel.controller.heartmonitor import HeartMonitor
from ipyparallel.controller.hub import Hub
from ipyparallel.engine.kernel import IPythonParallelKernel

PATCH = Path(__file__).resolve().parents[2] / "docs/upstream/ipyparallel-ipc.patch"


def test_the_heart_monitor_is_a_process_that_is_made_as_a_thread_is():
    """The controller starts its heart monitor differently: helpers/ranks/ipyparallel_parts.py makes it a thread."""
    assert ipyparallel.controller.app.Process is multiprocessing.Process
    assert "heartmonitor_process = Process(\n            target=" in inspect.getsource(IPController.init_hub)


def test_the_heart_monitor_is_made_by_its_name_and_the_hub_knows_who_waits():
    """The heart monitor or the hub's list of waiting engines has changed: helpers/ranks/ipyparallel_parts.py
    replaces the one and reads the other.
    """
    assert "HeartMonitor(" in inspect.getsource(heartmonitor._setup_heartmonitor)
    assert "self.caller = ioloop.PeriodicCallback(self.beat, self.period)" in inspect.getsource(HeartMonitor.start)
    assert isinstance(Hub.incoming_registrations, traitlets.Dict)


def test_all_that_the_controller_takes_of_time_is_one_sleep():
    """The controller uses more of the module time than one sleep, and helpers/ranks/ipyparallel_parts.py
    gives it nothing else.
    """
    assert re.findall(r"\btime\.\w+", inspect.getsource(ipyparallel.controller.app)) == ["time.sleep"]


def test_the_controller_asks_construct_url_for_every_address():
    """The controller no longer asks construct_url for its addresses, which helpers/ranks/ipyparallel_parts.py
    overrides.
    """
    for kind in ("engine", "client", "internal"):
        assert f"self.construct_url('{kind}', channel, index)" in inspect.getsource(
            getattr(IPController, f"{kind}_url")
        )


def test_the_patch_for_ipyparallel_is_still_needed_and_applies(tmp_path):
    """The sources that docs/upstream/ipyparallel-ipc.patch mends have changed: SocketsInAFolder may be unnecessary."""
    if not shutil.which("git"):
        pytest.skip("there is no git on this machine")
    installed = Path(ipyparallel.__file__).parent
    shutil.copytree(installed, tmp_path / "ipyparallel", ignore=shutil.ignore_patterns("__pycache__", "labextension"))
    outside_of_any_repository = os.environ | {"GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    apply = ["git", "apply", "--check", str(PATCH)]
    result = subprocess.run(apply, cwd=tmp_path, env=outside_of_any_repository, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_the_stream_of_a_rank_can_leave_a_file_descriptor_alone():
    """OutStream of ipykernel has lost its parameter watchfd, which helpers/ranks/ipyparallel_parts.py sets."""
    assert "watchfd" in inspect.signature(OutStream).parameters
    assert "write" in vars(OutStream)


def test_an_engine_makes_its_kernel_by_this_name_and_the_kernel_has_these_hooks():
    """The engine makes its kernel differently, or the kernel no longer calls the hooks that RankKernel overrides."""
    assert "Kernel.instance(" in inspect.getsource(ipyparallel.engine.app)
    handle = inspect.getsource(IPythonParallelKernel.dispatch_shell)
    assert "self.pre_handler_hook()" in handle and "self.post_handler_hook()" in handle
    assert "exec(code, shell.user_global_ns, shell.user_ns)" in inspect.getsource(IPythonParallelKernel.do_apply)


def test_python_knows_which_threads_it_did_not_start():
    """Threads that Python did not start are no longer _DummyThread, by which RankStream recognises them."""
    kinds = []
    _thread.start_new_thread(lambda: kinds.append(type(threading.current_thread())), ())
    deadline = time.monotonic() + 10
    while not kinds and time.monotonic() < deadline:
        time.sleep(0.01)
    assert kinds == [threading._DummyThread]


def test_the_magics_ask_this_method_which_engines_a_cell_goes_to():
    """The magics no longer ask _eval_target_str for their targets, which helpers/look/magics.py overrides."""
    assert "_eval_target_str" in vars(ParallelMagics)
