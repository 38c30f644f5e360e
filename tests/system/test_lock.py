"""constraints.txt is a lock: it has the version of everything that is installed for the course, and of nothing else."""

import importlib.metadata
import runpy
import sys
from pathlib import Path

import pytest
from test_packaging import PINS, ROOT, STAMP, has

LOCK = runpy.run_path(str(ROOT / ".ci/lock.py"))
DEV = {"dev"} if (ROOT / ".venv/.tools").exists() else set()
BROUGHT = LOCK["closure"](["test", "site", *DEV])

pytestmark = pytest.mark.skipif(
    Path(sys.prefix).resolve() != ROOT / ".venv" or not (ROOT / STAMP).exists() or sys.platform != "linux",
    reason="not in the .venv that make installs on Linux, so other packages are allowed",
)


def test_everything_that_is_installed_for_the_course_has_an_exact_version():
    open_versions = {name: importlib.metadata.version(name) for name in BROUGHT if name not in PINS}
    assert open_versions == {}, "run `make lock`"
    applies = {name: pin for name, pin in PINS.items() if pin.marker is None or pin.marker.evaluate()}
    others = {name: importlib.metadata.version(name) for name in BROUGHT & applies.keys()}
    assert {name: found for name, found in others.items() if not has(PINS[name], found)} == {}, "run `make lock`"


@pytest.mark.skipif(not DEV, reason="the tools of `make types` and `make lock` are not installed")
def test_nothing_else_has_one():
    assert PINS.keys() - BROUGHT == set(), "run `make lock`"


def test_what_a_newer_version_caps_is_not_pinned_for_an_older_python():
    sphinx, docutils = PINS["sphinx"], PINS["docutils"]
    assert str(sphinx.marker) == str(docutils.marker) == 'python_version >= "3.11"'
