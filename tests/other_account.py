"""A listener of another account on this machine, as a test of what the deployment trusts needs one."""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def listening_as_another_account(port: int = 0, host: str = "127.0.0.1") -> Iterator[int]:
    """A port of this host on which a socket of the account `nobody` listens. It takes root to make one."""
    if os.geteuid() != 0:
        pytest.skip("only root can listen as another account")
    os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        listener = socket.create_server((host, port))
    finally:
        os.seteuid(0)
    with listener:
        yield int(listener.getsockname()[1])
