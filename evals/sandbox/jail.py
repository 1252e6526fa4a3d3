"""Shuts a process in, for good, and runs a role in it.

Loaded by `python -I -S` alone, with the standard library and nothing else, since nothing else is there once the doors
are shut. Three processes, of which only the last runs foreign code:

    outer    ours; makes the namespaces and the file system, then waits; ends everything at the time limit
    init     ours; process 1 of the namespace: when it ends, the kernel ends all that is left in it
    worker   no capabilities, no network, no file it could write, no process beside it; runs the code

What the kernel does not allow is said on stderr, which nothing foreign ever holds.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import sys
from typing import Any, NoReturn

from evals.sandbox import roles
from evals.sandbox.calls import close_calls

REFUSED = "refused: "
NOBODY = 65534

# linux/sched.h, linux/mount.h, linux/prctl.h
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 2, 4, 4096, 16384, 1 << 18, 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38
SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE = 442, -100, 0x8000
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV = 1, 2, 4
CAPABILITY_VERSION = 0x20080522
# Mounted over in a namespace of our own; it exists everywhere and Python is never installed beneath it.
ROOT = "/sys"

_libc = ctypes.CDLL(None, use_errno=True)


class Refused(Exception):
    """The kernel said no."""


def _must(what: str, result: int) -> None:
    if result != 0:
        raise Refused(f"{what}: {os.strerror(ctypes.get_errno())}")


def _unshare(flags: int, what: str) -> None:
    _must(f"unshare of {what}", _libc.unshare(ctypes.c_int(flags)))


def _prctl(option: int, value: int) -> None:
    _must(f"prctl {option}", _libc.prctl(*(ctypes.c_ulong(one) for one in (option, value, 0, 0, 0))))


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    done = _libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode())
    _must(f"mount of {source} at {target}", done)


def _write(path: str, text: str, *, dir_fd: int | None = None) -> None:
    try:
        fd = os.open(path, os.O_WRONLY, dir_fd=dir_fd)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)
    except OSError as error:
        raise Refused(f"writing {path}: {error.strerror}") from error


def _own_user_namespace(extra: int = 0) -> None:
    """A user namespace in which this user is itself and nobody else exists."""
    uid, gid = os.geteuid(), os.getegid()
    _unshare(CLONE_NEWUSER | extra, "a user namespace")
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")


def _shut_in(packages: dict[str, str]) -> int:
    """Namespaces and a file system that holds Python and nothing else. Returns a descriptor of /proc."""
    rest = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS
    if os.geteuid() == 0:
        # Root mounts as itself, since Python may lie where only root gets; it gives up being root in _disarm.
        _unshare(rest, "namespaces")
    else:
        _own_user_namespace(rest)
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    _mount("none", "/", "", MS_REC | MS_PRIVATE)
    _mount("tmpfs", ROOT, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=0755")
    for source in _python():
        _bind(source, ROOT + source)
    for name, folder in packages.items():
        _bind(folder, f"{ROOT}/packages/{name}")
    for name in ("/lib", "/lib64"):
        if os.path.islink(name):
            os.symlink(os.readlink(name), ROOT + name)
        elif os.path.isdir(name):
            _bind(name, ROOT + name)
    attributes = (ctypes.c_uint64 * 4)(MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, 0, 0, 0)
    done = _libc.syscall(
        ctypes.c_long(SYS_MOUNT_SETATTR), ctypes.c_int(AT_FDCWD), ROOT.encode(), ctypes.c_uint(AT_RECURSIVE),
        ctypes.byref(attributes), ctypes.c_size_t(ctypes.sizeof(attributes)),
    )  # fmt: skip
    _must("mount_setattr (Linux 5.12 has it)", done)
    os.chdir(ROOT)
    _must("pivot_root", _libc.pivot_root(b".", b"."))
    _must("umount of the old root", _libc.umount2(b".", ctypes.c_int(MNT_DETACH)))
    os.chdir("/")
    return proc


def _python() -> list[str]:
    """Folders that Python needs to import its standard library."""
    found = ["/usr"]
    for folder in (sys.base_prefix, *sys.path):
        path = os.path.realpath(folder)
        if os.path.isdir(path) and not any(path == one or path.startswith(f"{one}/") for one in found):
            found.append(path)
    return found


def _bind(source: str, target: str) -> None:
    os.makedirs(target, exist_ok=True)
    _mount(source, target, "", MS_BIND | MS_REC)


def _disarm(proc: int) -> None:
    """Nobody, without a way to become anybody. Called in the namespaces, before anything foreign runs."""
    if os.geteuid() == 0:
        _become_nobody()
        _prctl(PR_SET_DUMPABLE, 1)  # else /proc/self belongs to root, who we are no more
        uid, gid = os.geteuid(), os.getegid()
        _unshare(CLONE_NEWUSER, "a user namespace")
        own = os.readlink("self", dir_fd=proc)
        _write(f"{own}/setgroups", "deny", dir_fd=proc)
        _write(f"{own}/uid_map", f"{uid} {uid} 1", dir_fd=proc)
        _write(f"{own}/gid_map", f"{gid} {gid} 1", dir_fd=proc)
    _write("sys/user/max_user_namespaces", "0", dir_fd=proc)  # in a namespace of its own it would have capabilities
    os.close(proc)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    none = (ctypes.c_uint32 * 6)()
    _must("capset", _libc.capset(ctypes.byref(header), ctypes.byref(none)))


def _become_nobody() -> None:
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def _limit(config: dict[str, Any]) -> None:
    limits = {
        resource.RLIMIT_CPU: config["cpu_s"],
        resource.RLIMIT_AS: config["memory_bytes"],
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: 32,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_NPROC: 0,  # of this user in this namespace: no fork, no thread
    }
    for kind, value in limits.items():
        resource.setrlimit(kind, (value, value))


def main(text: str) -> NoReturn:
    """Outer.

    text: JSON of isolation, role, wall_s, cpu_s, memory_bytes, packages (folders to import from, by name), paths (the
    same, where nothing is mounted), fds (those the role speaks through beside its stdin and stdout).
    """
    config = json.loads(text)
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    null = os.open("/dev/null", os.O_RDWR)
    lives, alive = os.pipe()
    try:
        shut_in = config["isolation"] == "namespaces"
        if not shut_in and config["role"] == "tests":
            # The program sees this process and the tests', and is of the same user: it must not get at their pipes
            # (/proc/PID/fd), by which verdicts are told, nor at their memory. Before it is given its code.
            _prctl(PR_SET_DUMPABLE, 0)
        proc = _shut_in(config["packages"]) if shut_in else -1
        child = os.fork()
        if child == 0:
            os.close(alive)
            _init(config, proc, null, lives) if shut_in else _worker(config, null, lives)
    except (Refused, OSError) as error:
        _refuse(error)
    # Whoever waits for the end of a pipe must not wait for us.
    for fd in (0, 1, lives, *config["fds"]):
        os.close(fd)
    watched = os.pidfd_open(child)
    if not select.select([watched], [], [], config["wall_s"])[0]:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os._exit(0)


def _init(config: dict[str, Any], proc: int, null: int, lives: int) -> NoReturn:
    try:
        _disarm(proc)
        _die_with_parent(lives)
        _prctl(PR_SET_DUMPABLE, 0)  # the worker, of the same user, must not trace or read this process
        child = os.fork()
    except (Refused, OSError) as error:
        _refuse(error)
    if child == 0:
        _worker(config, null, None)
    for fd in (0, 1, 2, *config["fds"]):
        os.close(fd)
    os.waitpid(child, 0)
    os._exit(0)


def _die_with_parent(lives: int) -> None:
    """Be killed when the parent ends. lives: a pipe that ends with it.

    Called after the user changed, which undoes it.
    """
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if select.select([lives], [], [], 0)[0]:
        os._exit(1)  # it ended before the kernel was told
    os.close(lives)


def _worker(config: dict[str, Any], null: int, lives: int | None) -> NoReturn:
    try:
        if os.geteuid() == 0:
            _become_nobody()
        if lives is not None:
            _die_with_parent(lives)
        _prctl(PR_SET_NO_NEW_PRIVS, 1)
        task, answers = os.dup(0), os.dup(1)
        _limit(config)
        close_calls(_libc)
    except (Refused, OSError) as error:
        _refuse(error)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    sys.path += ["/packages"] if config["isolation"] == "namespaces" else config["paths"]
    try:
        if config["role"] == "candidate":
            roles.answer_calls(os.fdopen(task, "rb"), os.fdopen(answers, "wb"))
        else:
            ask, replied = config["fds"]
            roles.run_tests(
                os.fdopen(task, "rb"), os.fdopen(answers, "wb"), os.fdopen(ask, "wb"), os.fdopen(replied, "rb")
            )
    finally:
        os._exit(0)  # whoever listens sees the end; no exit handler of foreign code runs


def _refuse(error: Exception) -> NoReturn:
    os.write(2, f"{REFUSED}{error}".encode()[:500])
    os._exit(1)
