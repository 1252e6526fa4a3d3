"""Drives `slipstream up` as a person would: a process on a data folder, asked and stopped through the command line."""

from __future__ import annotations

import contextlib
import io
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

import msgspec

from infra.local.child import ChildStatus
from infra.local.control import Answer
from infra.local.folders import DataFolder
from slipstream.__main__ import main
from tests.deployment import ROOT, free_port, plain_environment

COMMAND = (sys.executable, "-m", "slipstream")
# No engine is started: what is tested here is the supervisor, and torch takes seconds to load.
WITHOUT_ENGINES = """
[[models]]
name = "elsewhere"
tier = "chat"
pool = "elsewhere"
context_tokens = 1000

[[pools]]
name = "elsewhere"
driver = "openai"
replicas = [{ id = "elsewhere-1", url = "http://127.0.0.1:9" }]
"""


class RestartableDeployment:
    """One data folder and the `up` that may run on it."""

    def __init__(self, data: Path, *, engines: bool = False, settings: str = "") -> None:
        data.parent.mkdir(parents=True, exist_ok=True)
        self.data = data
        self.port = free_port()
        self.process: subprocess.Popen[str] | None = None
        self.errors = data.with_name(f"{data.name}.stderr")
        self._config = data.with_name(f"{data.name}.toml")
        self._config.write_text(settings + ("" if engines else WITHOUT_ENGINES))

    def up(self, *arguments: str, environment: Mapping[str, str] | None = None) -> list[str]:
        """Start and return the lines of the final block."""
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [*COMMAND, "up", "--data", str(self.data), "--port", str(self.port), *self.config, *arguments],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**plain_environment(), **(environment or {})},
            )
        assert self.process.stdout is not None
        lines: list[str] = []
        while not (lines and lines[-1].startswith("  try")):
            line = self.process.stdout.readline()
            assert line, self.errors.read_text()
            lines.append(line.rstrip("\n"))
        return lines

    @property
    def config(self) -> tuple[str, str]:
        """The option that names the settings file."""
        return "--config", str(self._config)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command on the same data folder."""
        return run(*command, "--data", str(self.data))

    def processes(self) -> dict[str, ChildStatus]:
        """What the supervisor says of its processes, by name."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(DataFolder(self.data).control_socket))
            connection.sendall(b'{"command":"status"}\n')
            with connection.makefile("rb") as stream:
                answer = msgspec.json.decode(stream.readline(), type=Answer)
        return {process.name: process for process in answer.processes}

    def kill(self) -> None:
        """kill -9 of the supervisor alone."""
        assert self.process is not None
        self.process.kill()
        self._collect()

    def close(self) -> None:
        """Whatever happened, leave nothing running."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self._collect()

    def _collect(self) -> None:
        if self.process is not None:
            self.process.wait(60)
            if self.process.stdout is not None:
                self.process.stdout.close()


def run(*command: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run one `slipstream` command to its end."""
    return subprocess.run(
        [*COMMAND, *command],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**plain_environment(), **(env or {})},
    )


def run_here(*command: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """What `run` gives, without a process of its own: for commands whose words are looked at. A test with a running
    event loop calls it on a thread."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.dict(os.environ, {**plain_environment(), **(env or {})}, clear=True),
        mock.patch.object(sys, "argv", ["slipstream", *command]),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())


def one_line(result: subprocess.CompletedProcess[str]) -> str:
    """The refusal: exit code 2, nothing on standard output, one line that begins with our name."""
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("slipstream: ")
    return lines[0]
