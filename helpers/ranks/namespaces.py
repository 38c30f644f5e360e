"""Linux namespaces: a private network for a process, and hosts with a name and a network each on one machine.

See unshare(2), user_namespaces(7), network_namespaces(7) and netdevice(7).
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path

_CLONE_NEWUSER, _CLONE_NEWNET, _CLONE_NEWUTS = 0x10000000, 0x40000000, 0x04000000
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1

_FOLDER_OF_SETTINGS = Path("/proc/sys")
# The settings that can forbid user namespaces, each with a value that forbids and a value that allows them.
_SETTINGS = {
    "kernel.apparmor_restrict_unprivileged_userns": ("1", "0"),
    "kernel.unprivileged_userns_clone": ("0", "1"),
    "user.max_user_namespaces": ("0", "10000"),
}


def enter_private_network() -> bool:
    """Move this process and its future children to a private network that has only a loopback; return True on success.

    Processes outside this network cannot connect to the processes inside. Root only leaves the network of the machine;
    any other user needs a user namespace, in which they keep their name. Call this while the process has one thread.
    """
    if sys.platform != "linux":
        return False
    if not _unshare(_CLONE_NEWNET):
        # Some systems allow only the first of these steps, which cannot be undone, so a child process tries both.
        if not _succeeds_in_a_child(_enter_as_a_user):
            return False
        _enter_as_a_user()
    _raise_loopback()
    return True


def make_host(name: str) -> dict[str, int]:
    """Make a host with its own user, network and host name; return its namespaces as open files, which keep them alive.

    The user namespace keeps processes from reading the memory of processes on other hosts, as RPC does within a
    machine. Call this on a private network. Raises OSError when the system does not allow such a host.
    """
    here, there = socket.socketpair()
    child = os.fork()
    if child == 0:
        with suppress(OSError):
            _call("unshare", _CLONE_NEWUSER | _CLONE_NEWNET | _CLONE_NEWUTS)
            socket.sethostname(name)
            _raise_loopback()
            there.send(b"made")
            here.close()
            there.recv(1)  # wait until the parent has opened the namespaces
        os._exit(0)
    try:
        with here:
            there.close()
            made = here.recv(4)
            if made:
                for kind in ("uid", "gid"):  # every user and group keeps its number
                    numbers = [line.split() for line in Path(f"/proc/self/{kind}_map").read_text().splitlines()]
                    known = "".join(f"{first} {first} {count}\n" for first, _, count in numbers)
                    Path(f"/proc/{child}/{kind}_map").write_text(known)
            namespaces = _namespaces(child, "user", "net", "uts") if made else {}
    finally:
        os.waitpid(child, 0)
    if not made:
        raise PermissionError("this system allows no host name or no second network without root")
    return namespaces


def this_network() -> dict[str, int]:
    """Return the network namespace of this process, in the form in which `make_host` returns namespaces."""
    return _namespaces("self", "net")


def enter(namespaces: dict[str, int], *kinds: str) -> None:
    """Move this process, which must have a single thread, into a host's namespaces; `kinds` restricts which ones."""
    for kind in kinds or namespaces:
        _call("setns", namespaces[kind], 0)


def _namespaces(process, *kinds):
    namespaces = {}
    try:
        for kind in kinds:
            namespaces[kind] = os.open(f"/proc/{process}/ns/{kind}", os.O_RDONLY)
    except OSError:
        for descriptor in namespaces.values():
            os.close(descriptor)
        raise
    return namespaces


def why_none() -> str:
    """Return a clause that says why this user has no network namespaces, and how to allow them."""
    if sys.platform != "linux":
        return f"this system ({sys.platform}) has none, Linux has"
    for name, (forbids, allows) in _SETTINGS.items():
        with suppress(OSError):  # not every system has every setting
            if Path(_FOLDER_OF_SETTINGS, name.replace(".", "/")).read_text().strip() == forbids:
                return f"this system forbids them; its administrator allows them with `sysctl -w {name}={allows}`"
    return (
        "this system forbids them; a container allows them with a seccomp profile that permits unshare, as in "
        "`docker run --security-opt seccomp=unconfined`"
    )


def _enter_as_a_user():
    user, group = os.geteuid(), os.getegid()
    if not _unshare(_CLONE_NEWUSER | _CLONE_NEWNET):
        raise PermissionError("no user namespaces")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _succeeds_in_a_child(action):
    child = os.fork()
    if child == 0:
        try:
            action()
            _raise_loopback()
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def _raise_loopback():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP))


def _unshare(flags):
    try:
        _call("unshare", flags)
    except OSError:  # not allowed, or not supported by this kernel
        return False
    return True


def _call(name, *arguments):
    """Call `unshare` or `setns`, which `os` has from Python 3.12 and the C library always; raise OSError on failure."""
    if hasattr(os, name):
        getattr(os, name)(*arguments)
        return
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    if function(*map(ctypes.c_long, arguments)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
