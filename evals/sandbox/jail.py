"""Confines a process for good and runs a role in it.

Only `python -I -S` loads it, with nothing but the standard library, since nothing else exists once the process is
confined. There are three processes, of which only the last runs foreign code:

    outer    trusted; makes the namespaces and the file system, then waits; kills everything at the time limit
    init     trusted; process 1 of the namespace: when it ends, the kernel kills all other processes in it
    worker   no capabilities, no network, no writable file, no other process in sight; runs the code

Operations that the kernel refuses are reported on stderr, which foreign code never holds.
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
# The mount point in the new namespace; it exists everywhere, and Python is never installed below it.
ROOT = "/sys"

_libc = ctypes.CDLL(None, use_errno=True)


class Refused(Exception):
    """The kernel refused an operation."""


def _must(what: str, result: int) -> None:
    if result != 0:
        raise Refused(f"{what}: {os.strerror(ctypes.get_errno())}")


def _unshare(flags: int, what: str) -> None:
    _must(f"unshare of {what}", _libc.unshare(ctypes.c_int(flags)))


def _prctl(option: int, value: int) -> None:
    _must(f"prctl {option}", _libc.prctl(*(ctypes.c_ulong(one) for one in (option, value, 0, 0, 0))))


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    result = _libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode())
    _must(f"mount of {source} at {target}", result)


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
    """Enter a user namespace in which only this user exists, with its own ids."""
    uid, gid = os.geteuid(), os.getegid()
    _unshare(CLONE_NEWUSER | extra, "a user namespace")
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")


def _shut_in(packages: dict[str, str]) -> int:
    """Enter namespaces and a file system that holds only Python. Returns a descriptor of /proc."""
    namespaces = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS
    if os.geteuid() == 0:
        # Root mounts as root, since only root may have access to Python's folder; _disarm drops root.
        _unshare(namespaces, "namespaces")
    else:
        _own_user_namespace(namespaces)
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
    result = _libc.syscall(
        ctypes.c_long(SYS_MOUNT_SETATTR), ctypes.c_int(AT_FDCWD), ROOT.encode(), ctypes.c_uint(AT_RECURSIVE),
        ctypes.byref(attributes), ctypes.c_size_t(ctypes.sizeof(attributes)),
    )  # fmt: skip
    _must("mount_setattr (Linux 5.12 has it)", result)
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
    """Become nobody, without a way to gain privileges. Called in the namespaces, before foreign code runs."""
    if os.geteuid() == 0:
        _become_nobody()
        _prctl(PR_SET_DUMPABLE, 1)  # else /proc/self still belongs to root
        uid, gid = os.geteuid(), os.getegid()
        _unshare(CLONE_NEWUSER, "a user namespace")
        own = os.readlink("self", dir_fd=proc)
        _write(f"{own}/setgroups", "deny", dir_fd=proc)
        _write(f"{own}/uid_map", f"{uid} {uid} 1", dir_fd=proc)
        _write(f"{own}/gid_map", f"{gid} {gid} 1", dir_fd=proc)
    _write("sys/user/max_user_namespaces", "0", dir_fd=proc)  # a new user namespace would give it capabilities
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
    """Run the outer process.

    text: JSON of isolation, role, wall_s, cpu_s, memory_bytes, packages (folders to import from, by name), paths (the
    same if nothing is mounted), fds (which the role uses in addition to its stdin and stdout).
    """
    config = json.loads(text)
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    null = os.open("/dev/null", os.O_RDWR)
    life, lifeline = os.pipe()
    try:
        shut_in = config["isolation"] == "namespaces"
        if not shut_in and config["role"] == "tests":
            # The program sees this process and that of the tests, and has the same user. It must not reach their pipes
            # (/proc/PID/fd), which carry verdicts, or their memory. So this comes before it gets its code.
            _prctl(PR_SET_DUMPABLE, 0)
        proc = _shut_in(config["packages"]) if shut_in else -1
        child = os.fork()
        if child == 0:
            os.close(lifeline)
            _init(config, proc, null, life) if shut_in else _worker(config, null, life)
    except (Refused, OSError) as error:
        _refuse(error)
    # A process that waits for the end of a pipe must not wait for this one.
    for fd in (0, 1, life, *config["fds"]):
        os.close(fd)
    watched = os.pidfd_open(child)
    if not select.select([watched], [], [], config["wall_s"])[0]:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os._exit(0)


def _init(config: dict[str, Any], proc: int, null: int, life: int) -> NoReturn:
    try:
        _disarm(proc)
        _die_with_parent(life)
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


def _die_with_parent(life: int) -> None:
    """Let the kernel kill this process when its parent ends. life: a pipe that ends with the parent.

    It must be called after a change of the user, which undoes it.
    """
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if select.select([life], [], [], 0)[0]:
        os._exit(1)  # the parent ended before the call above
    os.close(life)


def _worker(config: dict[str, Any], null: int, life: int | None) -> NoReturn:
    try:
        if os.geteuid() == 0:
            _become_nobody()
        if life is not None:
            _die_with_parent(life)
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
        os._exit(0)  # readers see the end of the pipes; no exit handler of foreign code runs


def _refuse(error: Exception) -> NoReturn:
    os.write(2, f"{REFUSED}{error}".encode()[:500])
    os._exit(1)
