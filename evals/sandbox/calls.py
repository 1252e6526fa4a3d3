"""Closes system calls that no small function needs, by seccomp: sockets of every kind, and what would go round a limit.

Namespaces leave some open: sockets to the machine that runs a virtual machine (vsock) are of no network namespace, and
shared memory of System V counts for no process. Numbers are of linux/audit.h and each architecture's table of calls.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CLOSED = {
    "socket": (41, 198), "io_uring_setup": (425, 425),
    "shmget": (29, 194), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180), "memfd_create": (319, 279),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "mount": (165, 40), "unshare": (272, 97), "setns": (308, 268),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
}  # fmt: skip
_X32 = 0x40000000
"""Numbers from here on are the same calls for 32-bit pointers, on x86_64."""
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06  # linux/bpf_common.h
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4  # in struct seccomp_data


def close_calls(libc: ctypes.CDLL) -> None:
    """For this process, for good. Wants no_new_privs. Raises OSError, also for an architecture not known here."""
    program = filter_for(os.uname().machine)
    held = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(held))
    arguments = (ctypes.c_ulong(_MODE_FILTER), described, ctypes.c_ulong(0), ctypes.c_ulong(0))
    if libc.prctl(ctypes.c_int(_PR_SET_SECCOMP), *arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"seccomp: {os.strerror(code)}")


def filter_for(machine: str) -> bytes:
    """The filter as the kernel reads it: a closed call fails with EPERM, another architecture's call is the end."""
    if machine not in _AUDIT_ARCH:
        raise OSError(errno.ENOSYS, f"seccomp: calls of {machine} are not known here, only of {', '.join(_AUDIT_ARCH)}")
    numbers = [pair[list(_AUDIT_ARCH).index(machine)] for pair in _CLOSED.values()]
    refuse = len(numbers) + 1  # instructions between the first comparison and the return that refuses
    lines = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, _AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, refuse, 0, _X32),
        *((_EQUAL, refuse - 1 - place, 0, number) for place, number in enumerate(numbers)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERROR | errno.EPERM),
    ]
    return b"".join(struct.pack("HBBI", *line) for line in lines)
