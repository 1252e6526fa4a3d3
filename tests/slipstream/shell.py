"""Runs `slipstream` commands inside the test's process, on one database."""

from __future__ import annotations

import asyncio
from pathlib import Path

from click.testing import CliRunner

from contracts.errors import SlipstreamError
from infra.local.folders import DataFolder
from slipstream.__main__ import cli


class Shell:
    """Each command runs on a thread of its own: it brings its own event loop."""

    def __init__(self, url: str, data: Path) -> None:
        DataFolder(data).prepare()
        self._environment = {"SLIPSTREAM_LOCAL__DATABASE_URL": url}
        self._data = data

    async def run(self, *arguments: str) -> tuple[int, str]:
        """Exit code and output; an error the program would show is 1 and its sentence."""
        result = await asyncio.to_thread(
            CliRunner().invoke, cli, [*arguments, "--data", str(self._data)], env=self._environment
        )
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
