"""Detects connections that failed for lack of a resource on this machine, which is not the engine's fault."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket

SHORTAGES = frozenset(
    {
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOBUFS,
        errno.ENOMEM,
        errno.ENOSPC,  # epoll has reached its limit of watched descriptors
        errno.EBUSY,  # glibc's error for a resolver module that could not be loaded; connecting never raises it
    }
)


def local_shortage(error: OSError, host: str) -> str | None:
    """The machine's own reason for a failed connection to `host`; None if no resource was lacking."""
    if isinstance(error, socket.gaierror):
        return os.strerror(errno.ENOMEM) if error.errno == socket.EAI_MEMORY else shortage_now()
    if error.errno in SHORTAGES or (error.errno == errno.EADDRNOTAVAIL and _has_route(host)):
        return os.strerror(error.errno)
    return None


def shortage_now() -> str | None:
    """The reason why no socket can be opened now, for failures without a reason; None if one can be opened."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()
    except OSError as error:
        return os.strerror(error.errno) if error.errno in SHORTAGES else None
    return None


def _has_route(host: str) -> bool:
    """Whether this machine has an address from which `host` can be reached. If so, the failed connection lacked a free
    port; if not, the replica's URL is wrong. Connecting a datagram socket sends nothing and takes no TCP port."""
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return True
    try:
        with socket.socket(socket.AF_INET6 if version == 6 else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))
    except OSError as error:
        return error.errno in SHORTAGES
    return True
