from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.gateway.metering.samples import closed, quick, rows, start


@pytest.mark.parametrize("rounds", [3, pytest.param(20, marks=pytest.mark.nightly)])
async def test_kill_9_at_random_moments_loses_and_doubles_nothing(tmp_path: Path, rounds: int) -> None:
    path = tmp_path / "gw"
    said: dict[str, set[str]] = {"opened": set(), "placed": set(), "closed": set()}
    for round_number in range(rounds):
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.gateway.metering.crashing_writer", str(path), str(round_number),
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert child.stdout is not None
        assert await child.stdout.readline() == b"resolved\n"
        for _ in range(random.Random(round_number).randrange(1, 400)):
            _note(said, await child.stdout.readline())
        child.kill()
        for line in (await child.stdout.read()).splitlines(keepends=True):
            _note(said, line)
        await child.wait()
    journal = await start(path, quick(lock_timeout_s=30))
    open_now = {left.opened.request_id: left.placed for left in journal.left_open}
    durable = Counter(row.opened.request_id for row in await rows(journal))
    assert said["closed"] <= set(durable)
    assert said["opened"] <= set(durable) | set(open_now)
    assert all(open_now[name] is not None for name in said["placed"] if name in open_now)
    assert set(durable).isdisjoint(open_now)
    assert set(durable.values()) == {1}
    for left in list(journal.left_open):
        await journal.closed(closed(left.opened))
    assert {row.opened.request_id for row in await rows(journal)} >= said["opened"]
    await journal.stop()


def _note(said: dict[str, set[str]], line: bytes) -> None:
    if line.endswith(b"\n"):
        what, name = line.decode().split()
        said[what].add(name)
