"""Whose programs listen on a TCP port of this machine, by the kernel's tables.

An engine that loads does not listen yet. A program of another account can take its port meanwhile, and would receive
the deployment's token and prompts. A program of this account, or of root, could read both anyway.
"""

from __future__ import annotations

import os
import pwd
import re
from pathlib import Path

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


def listening_uids(port: int) -> set[int] | None:
    """The user ids of the programs that listen on the port, on any address. None: this system has no such tables."""
    # sl, local address, remote address, state (0A: LISTEN), queues, timer, retransmits, uid
    row = re.compile(rb"^ *\d+: [0-9A-F]+:%04X [0-9A-F]+:0000 0A \S+ \S+ \S+ +(\d+) " % port, re.MULTILINE)
    tables = [table.read_bytes() for table in TABLES if table.exists()]
    return {int(uid) for table in tables for uid in row.findall(table)} if tables else None


def stranger(uids: set[int]) -> str:
    """The name of an account among these that is neither this one nor root; empty: there is none."""
    for uid in sorted(uids - {0, os.geteuid()}):
        try:
            return pwd.getpwuid(uid).pw_name
        except KeyError:  # of another container
            return f"uid {uid}"
    return ""


def port_fault(port: int) -> str:
    """The reason for which no token may be sent to an engine of this account on this port now; empty: there is none."""
    uids = listening_uids(port)
    if uids is None:
        return ""
    if account := stranger(uids):
        return taken_by(port, account)
    return "" if uids else f"nothing listens on its port {port} yet"


def taken_by(port: int, account: str) -> str:
    """The fault of an engine's port on which another account's program listens, with the next step."""
    return (
        f"a program of the account {account} listens on its port {port}; stop that program, or restart `slipstream "
        "up`, which picks another port unless pools.launch.port is set"
    )
