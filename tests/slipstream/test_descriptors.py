"""Every process of ours raises its limit of open files, one for each connection, and ends as soon as it has served."""

from __future__ import annotations

import importlib
import resource
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from slipstream.commands.processes import engine, gateway, worker
from slipstream.commands.router import router


@pytest.fixture
def lowered() -> Iterator[int]:
    """The hard limit, above the soft one while the test runs."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1] - 1, before[1]))
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(
    ("command", "module"),
    [
        (gateway, "gateway.main"),
        (router, "router.service"),
        (engine, "engines.embedded.server"),
        (worker, "slipstream.worker"),
    ],
)
def test_every_process_raises_its_limit_of_open_files_serves_and_leaves(
    command: click.Command, module: str, lowered: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []

    def main(*_: object, **__: object) -> None:
        seen.append(resource.getrlimit(resource.RLIMIT_NOFILE)[0])

    monkeypatch.setattr(importlib.import_module(module), "main", main)
    assert command.callback is not None
    monkeypatch.setattr(importlib.import_module(command.callback.__module__), "leave", lambda: seen.append("left"))
    result = CliRunner().invoke(command, ["--data", str(tmp_path)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert seen == [lowered, "left"]
