"""The editor's side of a language server on stdin and stdout, as far as these tests need it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

GUARD_S = 60.0


class LanguageClient:
    """Use `language_client`. `notified` holds what the server said unasked."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.notified: list[dict[str, Any]] = []

    async def ask(self, method: str, **params: Any) -> Any:
        """A request's result. Fails the test on an error."""
        number = len(self._answers) + 1
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._send({"id": number, "method": method, "params": params})
        async with asyncio.timeout(GUARD_S):
            told = await answer
        assert "error" not in told, told
        return told["result"]

    def tell(self, method: str, **params: Any) -> None:
        """A notification."""
        self._send({"method": method, "params": params})

    async def listen(self) -> None:
        """Read until the server ends."""
        assert self._process.stdout is not None
        while True:
            length = 0
            while line := (await self._process.stdout.readline()).strip():
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            if not length:
                return
            said = msgspec.json.decode(await self._process.stdout.readexactly(length))
            if "method" in said:
                self.notified.append(said)
                if "id" in said:  # the server asks: it gets nothing
                    self._send({"id": said["id"], "result": None})
            else:
                self._answers[said["id"]].set_result(said)

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        body = msgspec.json.encode({"jsonrpc": "2.0", **message})
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)


@contextlib.asynccontextmanager
async def language_client(
    command: Sequence[str | Path], environment: Mapping[str, str], folder: Path
) -> AsyncIterator[LanguageClient]:
    """Start a server in a folder; it is killed at the end."""
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=environment, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    client = LanguageClient(process)
    listening = asyncio.create_task(client.listen())
    try:
        yield client
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await listening
