"""The supervisor's control socket: one JSON line in, one JSON line out. `slipstream status` and `down` talk to it.

Whoever may enter the run folder may ask; nothing listens on the network.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from infra.local.child import ChildStatus
from infra.local.supervisor import Supervisor

ASK_TIMEOUT_S = 10.0


class Command(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A client's request to the supervisor."""

    command: Literal["status", "stop"]


class Answer(msgspec.Struct, frozen=True):
    """The supervisor's answer; `error` says why nothing was done."""

    url: str = ""
    processes: tuple[ChildStatus, ...] = ()
    preparing: str = ""
    """What is done before the first process is started."""
    error: str = ""


class ControlServer:
    """Answers on a unix socket while `up` runs. cancel: ends an `up` that has no supervisor yet."""

    def __init__(self, socket: Path, cancel: Callable[[], object]) -> None:
        self._socket = socket
        self._cancel = cancel
        self._supervisor: Supervisor | None = None
        self._url = ""
        self._server: asyncio.Server | None = None
        self.preparing = "settings are checked"
        """What is done until there is a supervisor."""
        self.cancelled = False
        """A client has stopped an `up` without a supervisor."""

    def supervise(self, supervisor: Supervisor, url: str) -> None:
        """Answer for these processes from now on. url: of the API."""
        self._supervisor, self._url = supervisor, url

    async def start(self) -> None:
        """Listen. The caller holds the data folder's lock, so a socket file that is there is a dead one."""
        self._socket.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, str(self._socket))
        self._socket.chmod(0o600)

    async def stop(self) -> None:
        """Close and remove the socket."""
        if self._server is not None:
            self._server.close()
            with contextlib.suppress(OSError):  # gone, or a disk that became read-only: it is dead all the same
                self._socket.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                line = await reader.readline()
            writer.write(msgspec.json.encode(self._answer(line)) + b"\n")
            await writer.drain()
        except (OSError, TimeoutError, ValueError):
            pass  # the client left, or never said anything whole
        finally:
            writer.close()

    def _answer(self, line: bytes) -> Answer:
        try:
            asked = msgspec.json.decode(line, type=Command)
        except msgspec.DecodeError as error:
            return Answer(error=str(error))
        if self._supervisor is None:
            if asked.command == "stop":
                self.cancelled = True
                self._cancel()
            return Answer(preparing=self.preparing)
        if asked.command == "stop":
            self._supervisor.stop_requested.set()
        return Answer(url=self._url, processes=self._supervisor.status())


async def ask(socket: Path, command: Literal["status", "stop"]) -> Answer | None:
    """The supervisor's answer, or None when none is running there."""
    try:
        async with asyncio.timeout(ASK_TIMEOUT_S):
            reader, writer = await asyncio.open_unix_connection(str(socket))
            try:
                writer.write(msgspec.json.encode(Command(command)) + b"\n")
                line = await reader.readline()
            finally:
                writer.close()
                await writer.wait_closed()
    except (OSError, TimeoutError):
        return None
    return msgspec.json.decode(line, type=Answer) if line else None
