"""The supervisor's control socket: one JSON line in, one JSON line out. `slipstream status` and `down` use it.

Any account that may enter the run folder may use it; nothing listens on the network.
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
    """The supervisor's answer; `error` is the reason why it did nothing."""

    url: str = ""
    processes: tuple[ChildStatus, ...] = ()
    preparing: str = ""
    """The work under way before the first process starts."""
    error: str = ""


class ControlServer:
    """Answers on a Unix socket while `up` runs. cancel: ends an `up` that has no supervisor yet."""

    def __init__(self, socket: Path, cancel: Callable[[], object]) -> None:
        self._socket = socket
        self._cancel = cancel
        self._supervisor: Supervisor | None = None
        self._url = ""
        self._server: asyncio.Server | None = None
        self.preparing = "settings are checked"
        """The work under way before `supervise` is called."""
        self.cancelled = False
        """Whether a client has stopped an `up` that had no supervisor."""

    def supervise(self, supervisor: Supervisor, url: str) -> None:
        """Answer for these processes from now on. url: the API's."""
        self._supervisor, self._url = supervisor, url

    async def start(self) -> None:
        """Listen. The caller holds the data folder's lock, so an existing socket file is stale."""
        self._socket.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, str(self._socket))
        self._socket.chmod(0o600)

    async def stop(self) -> None:
        """Close and remove the socket."""
        if self._server is not None:
            self._server.close()
            with contextlib.suppress(OSError):  # absent, or on a disk that became read-only: it is stale either way
                self._socket.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                line = await reader.readline()
            writer.write(msgspec.json.encode(self._answer(line)) + b"\n")
            await writer.drain()
        except (OSError, TimeoutError, ValueError):
            pass  # the client disconnected, or never sent a whole line
        finally:
            writer.close()

    def _answer(self, line: bytes) -> Answer:
        try:
            request = msgspec.json.decode(line, type=Command)
        except msgspec.DecodeError as error:
            return Answer(error=str(error))
        if self._supervisor is None:
            if request.command == "stop":
                self.cancelled = True
                self._cancel()
            return Answer(preparing=self.preparing)
        if request.command == "stop":
            self._supervisor.stop_requested.set()
        return Answer(url=self._url, processes=self._supervisor.status())


async def ask(socket: Path, command: Literal["status", "stop"]) -> Answer | None:
    """The supervisor's answer, or None if no supervisor runs there."""
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
