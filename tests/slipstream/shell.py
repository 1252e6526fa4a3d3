"""Runs `slipstream` commands inside the test's process, on one database."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from click.testing import CliRunner

from contracts.errors import SlipstreamError
from infra.local.folders import DataFolder
from slipstream.__main__ import cli

VARIABLE = "SLIPSTREAM_LOCAL__DATABASE_URL"


class Shell:
    """Each command runs on a thread of its own: it brings its own event loop."""

    def __init__(self, url: str, data: Path) -> None:
        DataFolder(data).prepare()
        self._url = url
        self._data = data
        self._running = 0
        self._before: str | None = None

    async def run(self, *arguments: str) -> tuple[int, str]:
        """Exit code and output; an error the program would show is 1 and its sentence."""
        with self._database_named():
            result = await asyncio.to_thread(CliRunner().invoke, cli, [*arguments, "--data", str(self._data)])
        if isinstance(result.exception, SlipstreamError):
            return 1, result.exception.message
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.output.strip()

    async def must(self, *arguments: str) -> str:
        """The output of a command that succeeds."""
        code, output = await self.run(*arguments)
        assert code == 0, output
        return output

    @contextlib.contextmanager
    def _database_named(self) -> Iterator[None]:
        """In the environment, from the first of the commands that run at once to the last: each on its own would put
        back what another had set."""
        if not self._running:
            self._before = os.environ.get(VARIABLE)
            os.environ[VARIABLE] = self._url
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                if self._before is None:
                    del os.environ[VARIABLE]
                else:
                    os.environ[VARIABLE] = self._before
