"""The course opened in JupyterLab: as a package that was built from here, and from a checkout."""

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
NOT_OF_THE_PACKAGE = shutil.ignore_patterns(
    ".*", "build", "*.egg-info", "__pycache__", "tests", "benchmarks", "my-course"
)

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


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """Return a folder with what a checkout has, so that a copy of the notebooks is not made in this one."""
    folder = tmp_path_factory.mktemp("checkout") / "course"
    shutil.copytree(ROOT, folder, ignore=NOT_OF_THE_PACKAGE)
    return folder


@contextmanager
def lab(package, folder, *arguments):
    """Run the README's command in a folder; yield the address that JupyterLab prints, and the file of all it says."""
    log = folder / "lab.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "helpers.lab", *arguments, "--no-browser", "--port=0", "--allow-root"],
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


def answer(address, path):
    """Return what the server at this address answers to a request."""
    return json.load(urllib.request.urlopen(urlunsplit(address._replace(path=path)), timeout=30))


def sources(notebook):
    return [cell["source"] for cell in notebook["cells"]]


def outputs(notebook):
    return [output for cell in notebook["cells"] for output in cell.get("outputs", [])]


def test_the_first_notebook_is_opened_from_a_copy_of_the_learners_own(package, tmp_path):
    with lab(package, tmp_path) as (address, log):
        notebooks = tmp_path / "torch-distributed-live/notebooks"
        assert f"The notebooks are in {notebooks.parent}.\n" in log.read_text()
        assert notebooks.parent.stat().st_mode & 0o077 == 0, "other users can read the answers"
        assert address.path == "/lab/tree/notebooks/00_meet_the_ranks.ipynb"
        served = {entry["name"] for entry in answer(address, "/api/contents/notebooks")["content"]}
        assert served == {path.name for path in (ROOT / "notebooks").glob("[!._]*")} - {"course.toml"}
        assert answer(address, "/api/kernelspecs")["default"] == KERNEL
        style = urlunsplit(address._replace(path="/custom/custom.css"))
        assert "word-break: normal" in urllib.request.urlopen(style, timeout=30).read().decode()


def test_answers_stay_when_the_course_is_opened_again(package, tmp_path):
    notebooks = tmp_path / "torch-distributed-live/notebooks"
    notebooks.mkdir(parents=True)
    (notebooks / "00_meet_the_ranks.ipynb").write_text("mine")
    (notebooks / "notes.txt").write_text("mine, too")
    with lab(package, tmp_path) as (_, log):
        assert "newer versions of notebooks/00_meet_the_ranks.ipynb. Yours stay" in log.read_text()
        assert (notebooks / "00_meet_the_ranks.ipynb").read_text() == "mine"
        assert (notebooks / "notes.txt").read_text() == "mine, too"
        assert (notebooks / "01_when_ranks_fail.ipynb").exists()


def test_a_checkout_opens_a_copy_without_outputs(checkout):
    stored = {path: path.read_bytes() for path in (checkout / "notebooks").rglob("*.ipynb")}
    with lab(checkout, checkout) as (address, log):
        assert f"The notebooks are in {checkout / 'my-course'}.\n" in log.read_text()
        assert address.path == "/lab/tree/notebooks/00_meet_the_ranks.ipynb"
        served = answer(address, "/api/contents/notebooks/00_meet_the_ranks.ipynb")["content"]
        original = json.loads((checkout / "notebooks/00_meet_the_ranks.ipynb").read_text())
        assert sources(served) == ["".join(source) for source in sources(original)]
        # Of all outputs the copy keeps the figure with which the lesson opens.
        (figure,) = outputs(served)
        assert "image/png" in figure["data"] and len(outputs(original)) > 1
    assert {path: path.read_bytes() for path in (checkout / "notebooks").rglob("*.ipynb")} == stored


def test_git_ignores_the_copy_and_make_clean_leaves_it(checkout):
    copied, cache = checkout / "my-course/notebooks/.ipynb_checkpoints/x", checkout / "notebooks/__pycache__/x"
    for path in (copied, cache):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    shutil.copy(ROOT / ".gitignore", checkout)
    subprocess.run(["git", "init", "-q", str(checkout)], check=True)
    assert subprocess.run(["git", "check-ignore", "-q", str(copied.parents[2])], cwd=checkout).returncode == 0
    subprocess.run(["make", "clean"], cwd=checkout, check=True, capture_output=True)
    assert copied.exists() and not cache.exists()


def test_authors_open_the_originals(checkout):
    with lab(checkout, checkout, "--originals") as (address, _):
        assert outputs(answer(address, "/api/contents/notebooks/00_meet_the_ranks.ipynb")["content"])


def test_a_copy_that_cannot_be_written_is_refused_in_a_sentence(package, tmp_path):
    (tmp_path / "torch-distributed-live").write_text("a file in the place of the folder")
    environment = os.environ | {"PYTHONPATH": str(package)}
    command = [sys.executable, "-m", "helpers.lab", "--version"]
    said = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert said.returncode == 1 and said.stderr.startswith("Your copy of the notebooks in ")
    assert "Make the folder writable" in said.stderr and "Traceback" not in said.stderr


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
