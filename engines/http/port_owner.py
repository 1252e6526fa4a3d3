"""Finds the accounts whose programs listen on a TCP port of this machine, from the kernel's tables.

An engine that is still loading does not listen yet. Meanwhile, a program of another account can take its port, and
would receive the deployment's token and prompts. A program of this account, or of root, could read both anyway.
"""

from __future__ import annotations

import ipaddress
import os
import pwd
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from contracts.addresses import Address, plain
from contracts.errors import ConfigError

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
ANY_IPV4, ANY_IPV6 = ipaddress.ip_address("0.0.0.0"), ipaddress.ip_address("::")  # noqa: S104  nothing is bound
REACHED: Mapping[Address, Address] = {
    ANY_IPV4: ipaddress.ip_address("127.0.0.1"),
    ANY_IPV6: ipaddress.ip_address("::1"),
}
"""The address that a connection to "any address" reaches."""


def listening_uids(host: str, port: int) -> set[int] | None:
    """The user ids of the programs that connections to this host and port can reach; None if this system has no such
    tables. Raises ConfigError if the host has no address."""
    # sl, local address, remote address, state (0A: LISTEN), queues, timer, retransmits, uid
    row = re.compile(rb"^ *\d+: ([0-9A-F]+):%04X [0-9A-F]+:0000 0A \S+ \S+ \S+ +(\d+) " % port, re.MULTILINE)
    tables = [table.read_bytes() for table in TABLES if table.exists()]
    if not tables:
        return None
    uids: dict[Address, set[int]] = {}
    for table in tables:
        for digits, uid in row.findall(table):
            uids.setdefault(_listened(digits), set()).add(int(uid))
    return {uid for address in _addresses(host) for uid in _reached(address, uids)}


def _listened(digits: bytes) -> Address:
    """Parse the kernel's form of an address: 32 bits at a time, in the machine's byte order."""
    words = (int(digits[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(digits), 8))
    return plain(ipaddress.ip_address(b"".join(words)))


def _addresses(host: str) -> Iterator[Address]:
    try:
        entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"engine on {host!r}: {error.strerror}; write an address of this machine") from None
    for *_, sockaddr in entries:
        address = plain(ipaddress.ip_address(str(sockaddr[0]).partition("%")[0]))
        yield REACHED.get(address, address)


def _reached(address: Address, uids: Mapping[Address, set[int]]) -> set[int]:
    """The user ids that a connection to `address` reaches. The kernel prefers the most specific listener, so another
    account's listener on `::` receives none of our connections."""
    listeners = (address, ANY_IPV4, ANY_IPV6) if address.version == 4 else (address, ANY_IPV6)
    return next((uids[listener] for listener in listeners if listener in uids), set())


def stranger(uids: set[int]) -> str:
    """The name of an account in `uids` that is neither this one nor root; empty if there is none."""
    for uid in sorted(uids - {0, os.geteuid()}):
        try:
            return pwd.getpwuid(uid).pw_name
        except KeyError:  # an account of another container
            return f"uid {uid}"
    return ""


def port_fault(host: str, port: int) -> str:
    """The reason why no token may be sent to an engine at this port now; empty if there is none."""
    uids = listening_uids(host, port)
    if uids is None:
        return ""
    if account := stranger(uids):
        return taken_by(port, account)
    return "" if uids else f"nothing listens on its port {port} yet"


def taken_by(port: int, account: str) -> str:
    """The error text for an engine's port on which another account's program listens, with the next step."""
    return (
        f"a program of the account {account} listens on its port {port}; stop that program, or restart `slipstream "
        "up`, which picks another port unless pools.launch.port is set"
    )
