"""Every private or undocumented part of Python, Jupyter, pytest, xdist and nbval that is used is still there."""

import inspect
from multiprocessing import forkserver, util

import _pytest.runner
from ipykernel import compiler
from ipyparallel.controller.hub import Hub
from ipyparallel.engine.app import IPEngine
from IPython.core.completer import IPCompleter
from nbval import plugin
from xdist.scheduler import LoadScopeScheduling


def test_the_fork_server_is_started_by_a_function_that_can_be_replaced():
    """The fork server is no longer started by util.spawnv_passfds, which helpers/ranks/prefork.py replaces."""
    assert "util.spawnv_passfds(" in inspect.getsource(forkserver.ForkServer.ensure_running)
    assert list(inspect.signature(util.spawnv_passfds).parameters) == ["path", "args", "passfds"]
    assert "args += ['-c', cmd]" in inspect.getsource(forkserver.ForkServer.ensure_running)


def test_the_hub_is_told_of_a_death_by_this_message():
    """The hub no longer answers "unregistration_request", which helpers/ranks/controller.py sends for a dead rank."""
    assert "'unregistration_request': self.unregister_engine" in inspect.getsource(Hub)


def test_an_engine_tells_when_its_cell_was_sent():
    """An engine has lost its kernel or get_parent: helpers/probe/recorder.py asks it since when a rank is busy."""
    assert "kernel" in IPEngine.class_trait_names()
    assert callable(IPEngine.class_traits()["kernel"].klass.get_parent)


def test_a_cell_has_a_file_name_that_follows_from_its_text():
    """ipykernel.compiler.get_file_name no longer depends on the text alone: helpers/look/cells.py finds cells by it."""
    assert compiler.get_file_name("x = 1") == compiler.get_file_name("x = 1") != compiler.get_file_name("x = 2")


def test_matchers_of_a_notebook_can_be_added():
    """IPCompleter has lost custom_matchers, to which helpers/look/editor.py adds the names of the ranks."""
    assert isinstance(IPCompleter().custom_matchers, list)


def test_pytest_names_the_running_test_in_one_function():
    """PYTEST_CURRENT_TEST is no longer set by _update_current_test_var, which tests/conftest.py replaces."""
    assert "PYTEST_CURRENT_TEST" in inspect.getsource(_pytest.runner)
    assert list(inspect.signature(_pytest.runner._update_current_test_var).parameters) == ["item", "when"]


def test_xdist_asks_which_tests_belong_together():
    """The scheduler no longer asks _split_scope which tests share a process, which tests/conftest.py overrides."""
    assert "self._split_scope(" in inspect.getsource(LoadScopeScheduling)


def test_nbval_collects_and_runs_cells():
    """The classes of nbval have changed: tests/lesson_files.py runs notebooks by them."""
    assert {"setup", "collect", "teardown"} <= set(vars(plugin.IPyNbFile))
    assert {"runtest", "repr_failure"} <= set(vars(plugin.IPyNbCell))
    assert issubclass(plugin.NbCellError, Exception)
