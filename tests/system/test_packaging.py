"""The two commands on a fresh machine: one list of dependencies, exact versions, and plain words when it cannot work.

No test here uses the network.
"""

import importlib.metadata
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from helpers.course import read_toml

ROOT = Path(__file__).resolve().parents[2]
STAMP = ".venv/.installed"  # make leaves it when .venv is complete

PYPROJECT = read_toml(ROOT / "pyproject.toml")
RUNTIME = [Requirement(line) for line in PYPROJECT["project"]["dependencies"]]
SITE = [Requirement(line) for line in PYPROJECT["project"]["optional-dependencies"]["site"]]
THE_SITE, *TEST = [Requirement(line) for line in PYPROJECT["project"]["optional-dependencies"]["test"]]
ALL = [needed for needed in RUNTIME + SITE + TEST if needed.marker is None or needed.marker.evaluate()]  # here


def read_constraints():
    lines = [line.split("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    pins = [Requirement(line) for line in lines if line]
    return {canonicalize_name(pin.name): pin for pin in pins}


PINS = read_constraints()


def installed_version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def has(pin, version):
    return version is not None and pin.specifier.contains(version)  # 2.13.0+cpu is 2.13.0 too


# ---------------------------------------------------------------- one list


def test_environment_yml_installs_this_checkout_and_lists_nothing_itself():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    python, pip, from_pip = environment["dependencies"]
    assert pip == "pip"
    assert from_pip == {"pip": ["-c constraints.txt", "-e .[test]"]}
    assert set(PYPROJECT["project"]["optional-dependencies"]) == {"actors", "torchft", "test", "site", "dev"}
    assert str(THE_SITE) == f"{PYPROJECT['project']['name']}[site]"  # so [test] is all there is
    name, version = python.split("=")
    assert name == "python" and version in SpecifierSet(PYPROJECT["project"]["requires-python"])


def test_make_installs_the_same_as_environment_yml():
    installs = re.findall(r"pip install (.*?)(?: \|\||;|$)", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    with_torch_that_is_there, only_torch, as_tested = [line.strip(" \\") for line in installs]
    assert as_tested == '-e ".[test]" -c constraints.txt' and with_torch_that_is_there == '-e ".[test]"'
    assert only_torch == "--index-url $(TORCH_INDEX) --no-deps torch -c constraints.txt"


def test_the_index_of_cpu_builds_is_named_in_one_place():
    index = re.search(r"^TORCH_INDEX := https://(\S+)$", (ROOT / "Makefile").read_text(), re.M)[1]
    files = subprocess.run(["git", "grep", "-lF", index], cwd=ROOT, capture_output=True, text=True).stdout.split()
    assert files in ([], ["Makefile"])  # none where there is no git


def test_there_is_no_second_list():
    others = [*ROOT.glob("*requirements*"), *ROOT.glob("setup.*"), *ROOT.glob("Pipfile*"), *ROOT.glob("*.lock")]
    assert others == []


# ---------------------------------------------------------------- exact versions


@pytest.mark.parametrize("requirement", ALL, ids=str)
def test_every_dependency_has_an_exact_version_that_pyproject_allows(requirement):
    pin = PINS.get(canonicalize_name(requirement.name))
    assert pin is not None, f"constraints.txt has no version of {requirement.name}"
    (exact,) = pin.specifier
    assert exact.operator == "==" and "*" not in exact.version
    assert exact.version in requirement.specifier


@pytest.mark.parametrize("requirement", ALL, ids=str)
def test_what_is_installed_is_what_pyproject_asks_for(requirement):
    version = installed_version(requirement.name)
    assert version is not None, f"{requirement.name} is not installed"
    assert requirement.specifier.contains(version, prereleases=True)


def test_make_installed_the_exact_versions():
    # Only .venv promises them. Elsewhere (conda, a machine that came with a torch of its own) it is enough that
    # the bounds of pyproject.toml hold, which the test above looks at.
    if Path(sys.prefix).resolve() != ROOT / ".venv" or not (ROOT / STAMP).exists():
        pytest.skip("not in the .venv that make installs, so other versions are allowed")
    apply = [pin for pin in PINS.values() if pin.marker is None or pin.marker.evaluate()]
    found = {pin.name: installed_version(pin.name) for pin in apply}
    others = {str(pin): found[pin.name] for pin in apply if not has(pin, found[pin.name])}
    assert {pin: version for pin, version in others.items() if version is not None} == {}  # tools may be missing


def test_a_version_that_needs_a_newer_python_carries_a_marker():
    # What a version needs is known where that version is installed: in .venv that is all of them.
    wrong = []
    for pin in PINS.values():
        if has(pin, installed_version(pin.name)):
            needs = SpecifierSet(importlib.metadata.metadata(pin.name).get("Requires-Python", ""))
            for python in ["3.10", "3.11", "3.12", "3.13", "3.14"]:
                exactly = {"python_version": python, "python_full_version": f"{python}.0"}
                applies = pin.marker is None or pin.marker.evaluate(exactly)
                if applies and f"{python}.0" not in needs:
                    wrong.append(f"{pin} on Python {python}: it needs {needs}")
    assert wrong == []


# ---------------------------------------------------------------- make, in a copy of the tree


def plant(folder):
    """Copy into this folder what make needs, with nothing installed."""
    if not shutil.which("make"):
        pytest.skip("there is no make on this machine")
    for name in ["Makefile", "pyproject.toml", "constraints.txt", "LICENSE"]:
        shutil.copy(ROOT / name, folder)
    (folder / "helpers").mkdir()
    (folder / "helpers/__init__.py").touch()
    return folder


@pytest.fixture
def tree(tmp_path):
    return plant(tmp_path)


def make(tree, *arguments, **environment):
    # What a make that runs these tests has put into the environment is not for this one.
    given = ("PYTHON", "TORCH", "NOTEBOOKS", "LESSONS", "ALL")
    clean = {key: value for key, value in os.environ.items() if not key.startswith("MAKE") and key not in given}
    return subprocess.run(
        ["make", *arguments], cwd=tree, env=clean | environment, capture_output=True, text=True, timeout=120
    )


def script(path, text):
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def fake_python(tree, name, first_lines="", refuses="nothing"):
    """This Python, with something said before each -c, and deaf to one -m."""
    return script(
        tree / name,
        f"""#!/bin/sh
if [ "$1" = -c ]; then exec "{sys.executable}" -c "{first_lines}
$2"; fi
if [ "$2" = "{refuses}" ]; then exit 1; fi
exec "{sys.executable}" "$@"
""",
    )


def assert_one_sentence(result, *words):
    """It failed, and the last thing seen, but for make's own `***` line, is one sentence with these words."""
    assert result.returncode != 0
    lines = [line for line in result.stderr.splitlines() if "***" not in line]
    assert [line for line in lines if line.startswith("make: ")] == lines[-1:]
    for word in words:
        assert word in lines[-1]
    assert "Traceback" not in result.stdout + result.stderr


@pytest.mark.parametrize("python", ["too-old", "absent"])
def test_no_python(tree, python):
    fake_python(tree, "too-old", "import sys; sys.version_info = (3, 9, 18)")
    result = make(tree, "lab", f"PYTHON=./{python}")
    assert_one_sentence(result, "needs Python 3.10 or newer", f'"./{python}"', "make lab PYTHON=")
    assert len(result.stderr.splitlines()) == 2  # the sentence and make's own line
    assert not (tree / ".venv").exists()


@pytest.mark.parametrize(
    "fault",
    [{"refuses": "venv"}, {"first_lines": "import sys; sys.modules['ensurepip'] = None"}],
    ids=["venv fails", "no ensurepip"],  # the second is Debian without python3-venv
)
def test_no_venv_module(tree, fault):
    fake = fake_python(tree, "python", **fault)
    result = make(tree, "lab", f"PYTHON={fake}")
    package = f"python3.{sys.version_info.minor}-venv"
    assert_one_sentence(result, "cannot make a virtual environment", f"apt install {package}.")
    assert len(result.stderr.splitlines()) == 2
    assert not (tree / STAMP).exists()


NOWHERE = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}


@pytest.fixture(scope="module")
def without_network(tmp_path_factory):
    """A tree in which make has made .venv, and pip has found no network; and the result of this make.

    To make .venv takes longer than all that follows, so several tests go on with this one, as the next make does.
    """
    tree = plant(tmp_path_factory.mktemp("without_network"))
    return SimpleNamespace(tree=tree, result=make(tree, "test", f"PYTHON={sys.executable}", **NOWHERE))


def test_no_network_and_what_it_leaves_is_not_taken_for_good(without_network, tmp_path):
    assert_one_sentence(without_network.result, "pip could not install the course", "check the network")
    tree = shutil.copytree(without_network.tree, tmp_path / "tree", symlinks=True)
    assert not (tree / STAMP).exists()
    assert make(tree, "-q", STAMP).returncode == 1

    # pip ended by itself, so the next call goes on with this .venv: its message is pip's, not one about Python.
    again = make(tree, "test", "PYTHON=./absent", **NOWHERE)
    assert_one_sentence(again, "pip could not install the course")

    # Had it been interrupted instead, .venv would be made again from the start.
    (tree / ".venv/.unfinished").touch()
    assert_one_sentence(make(tree, "test", "PYTHON=./absent", **NOWHERE), "needs Python 3.10")


def test_a_second_call_installs_nothing(tree):
    stamp = tree / STAMP
    stamp.parent.mkdir()
    stamp.touch()
    for name in ["Makefile", "helpers/__init__.py", "LICENSE"]:  # newer than the stamp, and no reason to install
        os.utime(tree / name, (stamp.stat().st_mtime + 60,) * 2)
    (tree / "notebooks").mkdir()
    (tree / "notebooks/00_lesson.ipynb").touch()
    for target in ["lab", "test", "bench", "notebooks", "site"]:
        plan = make(tree, "-n", target, "NOTEBOOKS=notebooks/00*.ipynb")
        assert plan.returncode == 0 and ".venv/bin/python" in plan.stdout
        assert "pip install" not in plan.stdout

    for name in ["pyproject.toml", "constraints.txt"]:
        assert make(tree, "-q", STAMP).returncode == 0
        before = (tree / name).stat()
        os.utime(tree / name, (stamp.stat().st_mtime + 60,) * 2)
        assert make(tree, "-q", STAMP).returncode == 1
        assert "pip install" in make(tree, "-n", "lab").stdout
        os.utime(tree / name, (before.st_atime, before.st_mtime))


@pytest.fixture
def tested_tree(tree):
    """A copy of the tree with a Python that only says which part of `make test` it is asked to run."""
    (tree / ".venv/bin").mkdir(parents=True)
    script(
        tree / ".venv/bin/python",
        """#!/bin/sh
case "$*" in
  "-m ruff check") part=ruff;;
  "-m ruff format --check") part=format;;
  "-m pytest "*" -m not alone and not cuda") part=tests;;
  "-m pytest "*" -m alone") part="tests alone";;
esac
echo "ran $part, lessons: $LESSONS, all: $ALL"
[ "$LEAVES" != "$part" ] || touch "$TMPDIR/something"
[ "$FAILS" != "$part" ]
""",
    )
    (tree / STAMP).touch()
    return tree


@pytest.mark.parametrize("part", ["ruff", "format", "tests", "tests alone", "nothing"])
def test_make_test_runs_all_four_and_each_counts(tested_tree, part):
    result = make(tested_tree, "test", "SECONDS_TO_VANISH=0", FAILS=part)
    expected = [f"ran {part}, lessons: , all: " for part in ["ruff", "format", "tests", "tests alone"]]
    assert result.stdout.splitlines() == expected
    assert (result.returncode == 0) == (part == "nothing")


def test_make_test_fails_when_something_is_left_in_the_temporary_folder(tested_tree, tmp_path):
    (tmp_path / "temporary").mkdir()
    result = make(tested_tree, "test", "SECONDS_TO_VANISH=0", LEAVES="tests", TMPDIR=str(tmp_path / "temporary"))
    assert_one_sentence(result, "the tests have left this in the temporary folder: something")
    assert list((tmp_path / "temporary").iterdir()) == []


def test_make_test_of_one_lesson(tested_tree):
    (tested_tree / "notebooks").mkdir()
    (tested_tree / "notebooks/04_ring.ipynb").touch()
    result = make(tested_tree, "test", "SECONDS_TO_VANISH=0", "NOTEBOOKS=notebooks/04*")
    assert "ran tests, lessons: notebooks/04_ring.ipynb, all: 1" in result.stdout.splitlines()
    nowhere = make(tested_tree, "test", "SECONDS_TO_VANISH=0", "NOTEBOOKS=notebooks/05*")
    assert "there is no notebook notebooks/05*" in nowhere.stderr and nowhere.returncode != 0


# ---------------------------------------------------------------- the build of PyTorch

TORCH, NUMPY = (next(iter(PINS[name].specifier)).version for name in ["torch", "numpy"])


def empty_wheel(folder, name, version, requires=()):
    """Write a wheel that installs nothing but its name, its version and what it requires; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    head = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", "Provides-Extra: test"]
    metadata = "\n".join([*head, *(f"Requires-Dist: {requirement}" for requirement in requires), ""])
    about = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{about}/METADATA", metadata)
        archive.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{about}/RECORD", "")
    return wheel


@pytest.fixture
def indexes(tmp_path):
    """A server with two package indexes, `usual` and `cpu`, that have torch; the paths asked for collect in `asked`."""
    empty_wheel(tmp_path / "indexes/usual/torch", "torch", TORCH)
    empty_wheel(tmp_path / "indexes/usual/numpy", "numpy", NUMPY)
    empty_wheel(tmp_path / "indexes/cpu/torch", "torch", f"{TORCH}+cpu", requires=["numpy"])

    class Index(SimpleHTTPRequestHandler):
        asked = []

        def log_message(self, form, *arguments):
            self.asked.append(self.path)

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Index, directory=tmp_path / "indexes")) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield SimpleNamespace(address=f"http://127.0.0.1:{server.server_port}", asked=Index.asked)
        server.shutdown()
        thread.join()


@pytest.fixture
def small_course(tree, without_network):
    """A tree whose pyproject.toml installs an empty course, which requires torch and numpy, into its empty .venv."""
    shutil.copytree(without_network.tree / ".venv", tree / ".venv", symlinks=True)
    wheel = empty_wheel(tree, "torch_distributed_live", "0.1.0", requires=["torch>=2.11", "numpy"])
    hook = f"def build_editable(folder, *_):\n    shutil.copy({str(wheel)!r}, folder)\n    return {wheel.name!r}\n"
    (tree / "ready_made.py").write_text(f"import shutil\n\n\n{hook}")
    backend = '[build-system]\nrequires = []\nbuild-backend = "ready_made"\nbackend-path = ["."]\n'
    project = '[project]\nname = "torch-distributed-live"\nversion = "0.1.0"\ndynamic = ["dependencies"]\n'
    (tree / "pyproject.toml").write_text(backend + project)
    return tree


def install(tree, indexes, *arguments, **environment):
    """Have make install the course from these indexes only; return its result."""
    usual = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": "", "PIP_INDEX_URL": f"{indexes.address}/usual"}
    index = f"TORCH_INDEX={indexes.address}/cpu"
    return make(
        tree, STAMP, f"PYTHON={sys.executable}", index, *arguments, NO_PROXY="127.0.0.1", **usual, **environment
    )


@pytest.mark.parametrize("choice, version", [([], TORCH), (["TORCH=cpu"], f"{TORCH}+cpu")])
def test_torch_comes_from_the_index_of_cpu_builds_when_asked_for(small_course, indexes, choice, version):
    result = install(small_course, indexes, *choice)
    assert result.returncode == 0, result.stderr
    assert (small_course / STAMP).exists()
    show = [small_course / ".venv/bin/python", "-m", "pip", "list", "--format=json"]
    packages = {package["name"]: package["version"] for package in json.loads(subprocess.check_output(show))}
    assert packages["torch"] == version and packages["numpy"] == NUMPY
    assert {path.split("/")[2] for path in indexes.asked if path.startswith("/cpu/")} == (
        {"torch"} if choice else set()
    )


def test_pip_prefers_the_cpu_build_where_it_sees_both(small_course, indexes):
    result = install(small_course, indexes, PIP_EXTRA_INDEX_URL=f"{indexes.address}/cpu")
    assert f"torch-{TORCH}+cpu" in result.stdout, result.stderr


def test_an_index_of_cpu_builds_without_torch_is_an_error_when_asked_for(small_course, indexes, tmp_path):
    shutil.rmtree(tmp_path / "indexes/cpu/torch")
    assert_one_sentence(install(small_course, indexes, "TORCH=cpu"), "pip could not install the course")
    assert not (small_course / STAMP).exists()


def test_another_build_of_torch_is_refused(tree):
    assert_one_sentence(make(tree, "lab", "TORCH=cuda"), 'TORCH is "cuda"', "can only be cpu")
    assert not (tree / ".venv").exists()


# ---------------------------------------------------------------- make test-cuda


def test_test_cuda_brings_no_torch(tree):
    fake = fake_python(tree, "python", "import sys; sys.modules['torch'] = None")
    result = make(tree, "test-cuda", f"PYTHON={fake}")
    assert_one_sentence(result, "uses the torch that", f'"{fake}"', "make test-cuda PYTHON=")
    assert not (tree / ".venv-cuda").exists()


def test_test_cuda_takes_torch_as_it_is(tree):
    result = make(tree, "test-cuda", f"PYTHON={sys.executable}", **NOWHERE)
    assert_one_sentence(result, "pip could not install the course", "check the network")  # it needs hatchling, once
    command = [tree / ".venv-cuda/bin/python", "-m", "pip", "install", "--no-index", "--no-deps", "torch>=2.11"]
    pip = subprocess.run(command, capture_output=True, text=True)
    assert pip.returncode == 0 and "Requirement already satisfied: torch" in pip.stdout


def test_test_cuda_fails_where_there_is_no_gpu():
    hidden = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "tests.cuda_report"]
    result = subprocess.run(command, cwd=ROOT, env=hidden, capture_output=True, text=True)
    assert result.returncode == 1 and result.stdout == ""
    assert re.fullmatch(r"make test-cuda needs a GPU, and torch \S+ finds none on this machine\.\n", result.stderr)


# ---------------------------------------------------------------- CI


@pytest.mark.parametrize("status", [0, 2])
def test_ci_runs_make_test_and_passes_its_failure_on(tmp_path, status):
    script(tmp_path / "make", f'#!/bin/sh\necho "make $*, CI=$CI, in $PWD"\nexit {status}\n')
    for program in ["chromium", "sshd", "slurmctld", "slurmd", "srun", "munged", "bwrap"]:
        script(tmp_path / program, "#!/bin/sh\n")
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    result = subprocess.run([ROOT / ".ci/run"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.stdout == f"make test, CI=true, in {ROOT}\n"
    assert result.returncode == status


def test_ci_fails_when_chromium_cannot_be_installed(tmp_path):
    for name in ["bash", "chmod", "dirname", "env", "rm", "sh"]:
        (tmp_path / name).symlink_to(shutil.which(name))
    script(tmp_path / "sudo", '#!/bin/sh\nshift\nexec "$@"\n')  # for somebody who is not root
    script(tmp_path / "apt-get", '#!/bin/sh\necho "apt-get $*"\n[ "$1" = update ]\n')
    script(tmp_path / "make", "#!/bin/sh\necho must not be reached\n")
    result = subprocess.run(
        [shutil.which("bash"), ROOT / ".ci/run"], env={"PATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert result.returncode != 0
    update, install = result.stdout.splitlines()  # of other programs those that are missing here
    assert update == "apt-get update"
    assert re.match("apt-get install --yes --no-install-recommends chromium( [a-z-]+)*$", install)


def test_the_tests_of_a_module_share_a_process(tmp_path):
    command = [sys.executable, "-m", "pytest", f"--basetemp={tmp_path / 'its'}", "-v", "-n", "2", "--dist", "loadscope"]
    said = subprocess.run([*command, "tests/check/test_datasets.py"], cwd=ROOT, capture_output=True, text=True).stdout
    processes = re.findall(r"\[(gw\d+)\] .* tests/check/test_datasets\.py::", said)
    assert len(processes) > 2 and len(set(processes)) == 1, said
