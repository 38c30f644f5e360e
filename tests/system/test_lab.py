"""The course as a package, without a checkout: built from here, unpacked elsewhere, and opened in JupyterLab."""

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
import zipfile
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psutil
import pytest
from live import is_served, left_after, wait_until

from helpers.kernels import KERNEL

ROOT = Path(__file__).resolve().parents[2]
NOT_OF_THE_PACKAGE = shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__", "tests", "benchmarks")

ADDRESS = re.compile(r"http://127\.0\.0\.1\S+(?=\n)")


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """Return the folder in which the packed course lies, as in a Python's site-packages."""
    folder = tmp_path_factory.mktemp("package")
    shutil.copytree(ROOT, folder / "course", ignore=NOT_OF_THE_PACKAGE)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--wheel-dir", str(folder), str(folder / "course")], check=True, timeout=120)
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site-packages")
    return folder / "site-packages"


@contextmanager
def lab(package, folder):
    """Run the README's command in a folder; yield the address that JupyterLab prints, and the file of all it says."""
    log = folder / "lab.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "helpers.lab", "--no-browser", "--port=0", "--allow-root"],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(package), "JUPYTER_CONFIG_DIR": str(folder / "config")},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        assert wait_until(lambda: ADDRESS.search(log.read_text()), 120), log.read_text()
        address = ADDRESS.search(log.read_text())[0]
        assert wait_until(lambda: is_served(address), 60), log.read_text()
        yield urlsplit(address), log
    finally:
        started = psutil.Process(server.pid).children(recursive=True) if server.poll() is None else []
        server.terminate()
        server.wait(30)
        assert left_after(started, 30) == []


def test_the_first_notebook_is_opened_from_a_copy_of_the_learners_own(package, tmp_path):
    with lab(package, tmp_path) as (address, log):
        notebooks = tmp_path / "torch-distributed-live/notebooks"
        assert f"The notebooks are in {notebooks.parent}." in log.read_text()
        assert notebooks.parent.stat().st_mode & 0o077 == 0, "other users can read the answers"
        assert address.path == "/lab/tree/notebooks/00_meet_the_ranks.ipynb"
        folder = urlunsplit(address._replace(path="/api/contents/notebooks"))
        served = {entry["name"] for entry in json.load(urllib.request.urlopen(folder, timeout=30))["content"]}
        assert served == {path.name for path in (ROOT / "notebooks").glob("[!._]*")}
        kernels = urlunsplit(address._replace(path="/api/kernelspecs"))
        assert json.load(urllib.request.urlopen(kernels, timeout=30))["default"] == KERNEL


def test_answers_stay_when_the_course_is_opened_again(package, tmp_path):
    notebooks = tmp_path / "torch-distributed-live/notebooks"
    notebooks.mkdir(parents=True)
    (notebooks / "00_meet_the_ranks.ipynb").write_text("mine")
    with lab(package, tmp_path):
        assert [path.name for path in notebooks.iterdir()] == ["00_meet_the_ranks.ipynb"]
        assert (notebooks / "00_meet_the_ranks.ipynb").read_text() == "mine"


def test_every_file_of_the_notebooks_is_in_the_package(package):
    def files(folder):
        names = {path.relative_to(folder).as_posix() for path in folder.rglob("*.*")}
        return {name for name in names if ".ipynb_checkpoints" not in name and "__pycache__" not in name}

    assert files(package / "helpers/notebooks") == files(ROOT / "notebooks")
    code = "from helpers import course, faulty; print(course.IS_CHECKOUT, len(faulty.script('resumed')) > 0)"
    environment = os.environ | {"PYTHONPATH": str(package)}
    told = subprocess.run([sys.executable, "-c", code], cwd=package, env=environment, capture_output=True, text=True)
    assert told.stdout == "False True\n", told.stderr


def test_the_kernelspec_is_in_the_package(package):
    (stored,) = package.glob("*.data/data/share/jupyter/kernels/*/kernel.json")
    assert stored.parent.name == KERNEL


def test_the_digits_and_their_licence_are_in_the_package(package):
    assert {path.name for path in (package / "helpers/data").iterdir()} == {"README.txt", "digits.npz"}
    code = "import helpers; from helpers import datasets; print(helpers.__file__, len(datasets.digits()[0]))"
    environment = os.environ | {"PYTHONPATH": str(package)}
    result = subprocess.run([sys.executable, "-c", code], cwd=package, env=environment, capture_output=True, text=True)
    assert result.stdout == f"{package / 'helpers/__init__.py'} 1500\n", result.stderr
