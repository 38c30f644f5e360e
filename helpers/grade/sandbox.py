"""The sandbox in which answers run: they see the course, Python and the system's libraries, and no other files.

Bubblewrap (https://github.com/containers/bubblewrap) makes a file system of the paths listed here, read-only except for
temporary folders of a fixed size. It gives the answers an empty environment, and a network, process ids and a host name
of their own. If systemd runs for this user, a control group limits memory as well.
"""

import functools
import hmac
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from helpers.course import NOTEBOOKS

ROOT = Path(__file__).resolve().parents[2]  # the folder that has the package helpers

MEMORY = 4 * 2**30  # bytes, for all processes together
THREADS = 1000
LETTERS = 2000  # the maximum length of the sentence of a verdict
_BYTES_OF_FOLDERS = {"/tmp": 2**30, "/dev/shm": 2**28}
_SYSTEM = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"]
_OF_THE_SYSTEM = ["/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime", "/sys/devices/system/cpu"]


def why_not() -> str:
    """Return why this system cannot run a sandbox, an empty string when it can."""
    if shutil.which("bwrap") is None:
        return (
            "grading runs what learners wrote, and needs bubblewrap to keep it from doing harm. "
            "It is there for Linux only; on Debian and Ubuntu: apt install bubblewrap"
        )
    command = [*command_in_sandbox(), sys.executable, "-c", "import helpers.world"]
    tried = subprocess.run(command, capture_output=True, text=True)
    return f"bubblewrap does not work here: {tried.stderr.strip()}" if tried.returncode else ""


def command_in_sandbox() -> list[str]:
    """Return the prefix that runs a command in a sandbox."""
    # Bubblewrap's own environment is empty as well, because it has a process in the sandbox.
    command = [*_control_group(), "env", "-i", shutil.which("bwrap"), "--die-with-parent", "--new-session"]
    command += ["--unshare-all", "--cap-drop", "ALL", "--hostname", "sandbox", "--clearenv"]
    if os.geteuid() == 0:  # As a user, the ranks get a user namespace below the judge's, and cannot inspect the judge.
        command += ["--unshare-user", "--uid", "1000", "--gid", "1000"]
    for name, value in _environment().items():
        command += ["--setenv", name, value]
    command += ["--proc", "/proc", "--dev", "/dev"]
    for folder, size in _BYTES_OF_FOLDERS.items():
        command += ["--size", str(size), "--tmpfs", folder]
    for path in _SYSTEM:
        if os.path.islink(path):
            command += ["--symlink", os.readlink(path), path]
        elif os.path.exists(path):
            command += ["--ro-bind", path, path]
    for path in [*_OF_THE_SYSTEM, *_python(), str(ROOT / "helpers")]:
        command += ["--ro-bind-try", path, path]
    for folder in {*sys.path, str(ROOT)}:  # the course may be installed as a package, with its solutions
        if os.path.isdir(notebooks := os.path.join(folder, "helpers/notebooks")):
            command += ["--tmpfs", notebooks]
    for path in [NOTEBOOKS / "faulty", *sorted(NOTEBOOKS.glob("*.py"))]:  # lessons import these modules
        command += ["--ro-bind", str(path), str(path)]
    return [*command, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]


def signature(key: str, number: int, solved: bool, sentence: str) -> str:
    """Return the signature of a verdict on the exercise with this number; only a process with the key can make it."""
    return hmac.new(key.encode(), json.dumps([number, solved, sentence]).encode(), "sha256").hexdigest()


def _environment():
    path = os.pathsep.join([os.path.dirname(sys.executable), "/usr/bin", "/bin", "/usr/sbin", "/sbin"])
    return {
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "PATH": path,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(NOTEBOOKS)]),
        "TMPDIR": "/tmp",
        "USER": "learner",
    }


def _python():
    """Return the folders of this Python: its environment, and the installation on which the environment is based."""
    folders = {sys.prefix, sys.base_prefix, os.path.realpath(sys.base_prefix)}
    return sorted(folder for folder in folders if folder != "/" and not folder.startswith("/usr"))


@functools.cache
def _control_group():
    """Return the prefix that runs a command in a control group, an empty list if systemd cannot make one."""
    command = ["systemd-run", "--user", "--scope", "--quiet", "--collect"]
    for limit in (f"MemoryMax={MEMORY}", "MemorySwapMax=0", f"TasksMax={THREADS}"):
        command += ["--property", limit]
    try:
        tried = subprocess.run([*command, "true"], capture_output=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [] if tried.returncode else command
