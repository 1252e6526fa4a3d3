"""A page of the docs as a reader follows it: its shell blocks, pasted in order into a shell on a fresh folder.

A block is ```sh. The comment in the line above it says what a reader does otherwise:

    <!-- not run: WHY -->                    it cannot be run by a test
    <!-- stays in the foreground: TEXT -->   a terminal of its own; the page goes on once it has printed TEXT
    <!-- each line stays in the foreground -->   the same for each line, in any order
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import msgspec

from tests.deployment import ROOT, free_port, plain_environment

GUARD_S = 240.0
"""Against hanging for ever, not a measure."""
BLOCK = re.compile(r"(?:^<!-- (?P<note>[^\n]*) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
NOT_RUN = "not run: "
EACH_LINE = "each line stays in the foreground"
FOREGROUND = "stays in the foreground: "
PORTS = ("8000", "9000")
"""On which the pages' own servers listen; each reader gets others, for tests run beside each other."""


class Block(msgspec.Struct, frozen=True):
    """note: the comment above it. line: where it begins in the page."""

    page: str
    line: int
    language: str
    text: str
    note: str

    @property
    def title(self) -> str:
        """Its place and first line."""
        return f"{self.page}:{self.line} {self.text.partition(chr(10))[0]}"


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    text = page.read_text()
    return [
        Block(
            page.name,
            text.count("\n", 0, found.start("text")),
            found["language"],
            found["text"],
            found["note"] or "",
        )
        for found in BLOCK.finditer(text)
    ]


def shell_blocks(page: Path) -> list[Block]:
    """What a reader of the page pastes, in order, without what no test can run."""
    return [block for block in blocks(page) if block.language == "sh" and not block.note.startswith(NOT_RUN)]


class Reader:
    """A person with a shell in a folder, and a terminal for each process that stays. Use `reader`."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.ports = {port: free_port() for port in PORTS}
        self.replaced: dict[str, str] = {}
        """Words of the pages that stand for something of the reader's own: what is pasted in their place."""
        self._environment = {
            **plain_environment(),
            **environment,
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "SLIPSTREAM_GATEWAY__PORT": str(self.ports["8000"]),
        }
        self._shell: asyncio.subprocess.Process | None = None
        self._staying: list[asyncio.subprocess.Process] = []
        self._number = 0

    def install(self) -> None:
        """Put the command into the PATH of every terminal, as an installation does; a clone has it in .venv only."""
        self._environment["PATH"] = f"{self.folder / '.venv' / 'bin'}:{self._environment['PATH']}"

    async def paste(self, block: Block) -> str:
        """Run one block; its output. Fails when a command of it fails."""
        self._number += 1
        script = self.folder / f"block{self._number}.sh"
        text = block.text
        for port, chosen in self.ports.items():
            text = re.sub(rf"(?<=127\.0\.0\.1)(:|\", ){port}\b", rf"\g<1>{chosen}", text)
        for word, own in self.replaced.items():
            text = text.replace(word, own)
        script.write_text(text)
        if block.note.startswith(FOREGROUND):
            return await self._stay(script, block.note.removeprefix(FOREGROUND))
        return await self._run(script, block.title)

    async def start(self, line: str) -> asyncio.subprocess.Process:
        """One of the lines that stay in the foreground."""
        for word, own in self.replaced.items():
            line = line.replace(word, own)
        with (self.folder / "processes.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *shlex.split(line),
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self._environment,
                start_new_session=True,
            )
        self._staying.append(process)
        return process

    async def _run(self, script: Path, title: str) -> str:
        if self._shell is None:
            self._shell = await self._bash()
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        end = f"== end of {script.name} =="
        self._shell.stdin.write(f"set -e -o pipefail; source {script} < /dev/null; set +e; echo '{end}'\n".encode())
        said = ""
        while line := (await self._shell.stdout.readline()).decode():
            if line.endswith(f"{end}\n"):
                return said + line.removesuffix(f"{end}\n")
            said += line
        raise AssertionError(f"{title} failed:\n{said}")

    async def _stay(self, script: Path, until: str) -> str:
        process = await self._bash(str(script))
        self._staying.append(process)
        assert process.stdout is not None
        said = ""
        while line := (await process.stdout.readline()).decode():
            said += line
            if until in line:
                return said
        raise AssertionError(f"it ended before it said {until!r}:\n{said}")

    async def _bash(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            "bash", *arguments,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            cwd=self.folder, env=self._environment, start_new_session=True,
        )  # fmt: skip

    async def close(self) -> None:
        """Leave nothing running, whatever the page left."""
        for process in (*self._staying, *([self._shell] if self._shell is not None else ())):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


@contextlib.asynccontextmanager
async def reader(**environment: str) -> AsyncIterator[Reader]:
    """In a fresh folder that looks like a clone in which all is installed. environment: more of it."""
    folder = Path(tempfile.mkdtemp(prefix="slip-"))
    _program(folder / ".venv" / "bin" / "slipstream", f'PYTHONPATH={ROOT} exec {sys.executable} -m slipstream "$@"')
    _program(folder / ".venv" / "bin" / "python", f'exec {sys.executable} "$@"')
    # What `make up` does when all is installed.
    _program(folder / "bin" / "make", f'[ "$*" = up ] && exec {folder}/.venv/bin/slipstream up')
    made = Reader(folder, environment)
    try:
        yield made
    finally:
        await made.close()
        shutil.rmtree(folder, ignore_errors=True)


def _program(path: Path, line: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
