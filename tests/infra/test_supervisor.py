"""Children are stopped by stages: each after the one before, those of one stage beside one another."""

from __future__ import annotations

import sys
from pathlib import Path

from infra.local.child import ChildSpec
from infra.local.config import LocalConfig
from infra.local.folders import DataFolder
from infra.local.spawn import Launch
from infra.local.supervisor import Supervisor
from slipstream.processes import STOP_STAGES
from tests.waiting import GUARD_S

CONFIG = LocalConfig(stop_timeout_s=GUARD_S)
PROGRAM = """
import pathlib, signal, sys, time
name, awaited = sys.argv[1], sys.argv[2:]
folder = pathlib.Path.cwd()
def stop(*_):
    (folder / f"{name}.asked").touch()
    while not all((folder / each).exists() for each in awaited):
        time.sleep(0.01)
    (folder / f"{name}.ended").touch()
    sys.exit()
signal.signal(signal.SIGTERM, stop)
(folder / f"{name}.ready").touch()
while True:
    time.sleep(600)
"""


async def test_what_needs_nothing_of_one_another_is_stopped_at_once_after_the_gateways(tmp_path: Path) -> None:
    """Worker, engine and router end only when all three were asked; the databases only when all of those have ended."""
    data = DataFolder(tmp_path / "data")
    data.prepare()
    supervisor = Supervisor(data, CONFIG)
    middle, last = ("worker", "engine-chat-1", "router"), ("valkey", "postgres")
    awaited = {
        "gateway-1": (),
        **dict.fromkeys(middle, ("gateway-1.ended", *(f"{name}.asked" for name in middle))),
        **dict.fromkeys(last, tuple(f"{name}.ended" for name in middle)),
    }
    for name, files in awaited.items():
        await supervisor.add(_spec(tmp_path, name, files)).ready()
    await supervisor.stop(STOP_STAGES)
    assert {name for name in awaited if (tmp_path / f"{name}.ended").exists()} == awaited.keys()
    asked = {name: (tmp_path / f"{name}.asked").stat().st_mtime_ns for name in awaited}
    ended = {name: (tmp_path / f"{name}.ended").stat().st_mtime_ns for name in awaited}
    assert ended["gateway-1"] <= min(asked[name] for name in middle)
    assert max(ended[name] for name in middle) <= min(asked[name] for name in last)


def _spec(folder: Path, name: str, awaited: tuple[str, ...]) -> ChildSpec:
    launch = Launch(argv=(sys.executable, "-S", "-c", PROGRAM, name, *awaited), folder=str(folder))

    async def is_ready() -> bool:
        return (folder / f"{name}.ready").exists()

    return ChildSpec(name=name, launch=launch, probe=is_ready)
