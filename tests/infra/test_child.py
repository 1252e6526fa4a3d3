"""A watched process that dies is started again, alone; one that never works is given up with its own words."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import msgspec
import pytest

from contracts.errors import ConfigError
from infra.local.child import Child, ChildSpec, State
from infra.local.config import LocalConfig
from infra.local.spawn import Launch
from tests.processes import executes
from tests.small_disk import small_disk
from tests.waiting import GUARD_S, eventually

QUICK = LocalConfig(restart_first_s=0.01, restart_max_s=0.05)
SLEEPER = "import time; time.sleep(600)"


def _spec(name: str, program: str, **fields: object) -> ChildSpec:
    launch = Launch(argv=(sys.executable, "-S", "-c", program))
    return ChildSpec(name=name, launch=launch, **fields)  # type: ignore[arg-type]


async def test_a_killed_child_comes_back_and_its_neighbour_never_notices(tmp_path: Path) -> None:
    notices: list[str] = []
    first, second = (
        Child(_spec(name, SLEEPER), tmp_path / f"{name}.log", QUICK, notice=notices.append)
        for name in ("first", "second")
    )
    for child in (first, second):
        child.start()
        await child.ready()
    killed, neighbour = first.pid, second.pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    await eventually(lambda: first.restarts == 1 and first.state is State.READY)
    assert first.pid not in (None, killed)
    assert (second.pid, second.restarts) == (neighbour, 0)
    assert "signal SIGKILL" in first.log.read_text()
    ready_again = notices.pop()
    assert notices == [f"first pid {killed} ended with signal SIGKILL", "first is restarted"]
    assert re.fullmatch(r"first is ready again, \d+\.\d s after its restart", ready_again)
    await asyncio.gather(first.stop(), second.stop())
    assert first.pid is None
    assert first.status().state is State.STOPPED


@pytest.mark.parametrize(("said", "code", "restarts"), [("the disk is full", 1, 2), ("port: 0 is out of range", 2, 0)])
async def test_a_child_that_never_works_is_given_up_with_its_last_line_and_a_bad_setting_at_once(
    said: str, code: int, restarts: int, tmp_path: Path
) -> None:
    program = f"print({said!r}); raise SystemExit({code})"
    child = Child(_spec("broken", program, probe=_never), tmp_path / "b.log", QUICK)
    child.start()
    with pytest.raises(ConfigError, match=f"broken did not start: {said}"):
        await child.ready()
    assert child.restarts == restarts
    await child.stop()


async def test_of_a_child_that_could_write_nothing_the_room_for_its_log_is_told(tmp_path: Path) -> None:
    with small_disk("tmpfs", 1_000_000) as disk:
        log = disk.path / "mute.log"
        log.touch()
        disk.fill()
        program = "print('why', flush=True)"
        child = Child(_spec("mute", program, probe=_never), log, QUICK)
        child.start()
        with pytest.raises(ConfigError, match=r"mute did not start: it wrote nothing \(0\.0 MB free for its log\)"):
            await child.ready()
        await child.stop()


async def test_a_child_that_never_gets_ready_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    program = f"print('thinking', flush=True); {SLEEPER}"
    child = Child(
        _spec("slow", program, probe=_never), tmp_path / "slow.log", msgspec.structs.replace(QUICK, ready_timeout_s=0.5)
    )
    child.start()
    with pytest.raises(
        ConfigError, match=r"slow did not start: not ready within local\.ready_timeout_s = 0\.5 \("
    ) as late:
        await child.ready()
    assert "up to 3,600" in late.value.message
    assert "its last line: thinking" in late.value.message or "killed" in late.value.message
    assert child.pid is None
    await child.stop()


async def test_a_child_at_work_of_its_own_has_its_time_once_more(tmp_path: Path) -> None:
    """Fault: a first start on a busy machine was killed while its engines compiled, and so was each start after it."""
    asked = []

    def at_work(log: Path) -> bool:
        asked.append(log)
        return len(asked) < 4

    async def probe() -> bool:
        return len(asked) == 3

    spec = _spec("compiler", SLEEPER, probe=probe, at_work=at_work)
    child = Child(spec, tmp_path / "compiler.log", msgspec.structs.replace(QUICK, ready_timeout_s=0.1))
    child.start()
    await asyncio.wait_for(child.ready(), GUARD_S)
    assert asked == [child.log] * 3
    await child.stop()


async def test_an_error_that_its_watcher_did_not_expect_is_raised_where_it_is_waited_for(tmp_path: Path) -> None:
    async def broken() -> None:
        raise RuntimeError("the loop starts no such child")

    child = Child(_spec("odd", SLEEPER, before_start=broken), tmp_path / "odd.log", QUICK)
    child.start()
    with pytest.raises(RuntimeError, match="the loop starts no such child"):
        await asyncio.wait_for(child.ready(), GUARD_S)
    await child.stop()


async def test_a_program_that_does_not_exist_is_one_sentence(tmp_path: Path) -> None:
    child = Child(ChildSpec(name="ghost", launch=Launch(argv=("/nowhere/ghost",))), tmp_path / "ghost.log")
    child.start()
    with pytest.raises(ConfigError, match="ghost did not start"):
        await child.ready()
    await child.stop()


async def test_a_child_that_ignores_the_stop_signal_is_killed(tmp_path: Path) -> None:
    program = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); {SLEEPER}"
    log = tmp_path / "stubborn.log"

    async def is_on() -> bool:
        return "on" in log.read_text()

    child = Child(_spec("stubborn", program, probe=is_on), log, msgspec.structs.replace(QUICK, stop_timeout_s=0.2))
    child.start()
    await child.ready()
    await child.stop()
    assert child.pid is None


@pytest.mark.parametrize("own_session", [False, True])
async def test_helpers_of_a_child_that_ends_are_ended_too(own_session: bool, tmp_path: Path) -> None:
    program = (
        f"import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-S', '-c', {SLEEPER!r}], "
        f"start_new_session={own_session}); print('helper', p.pid, flush=True); time.sleep(600)"
    )
    log = tmp_path / "parent.log"

    async def is_on() -> bool:
        return log.read_text().endswith("\n")

    child = Child(_spec("parent", program, probe=is_on), log, QUICK)
    child.start()
    await child.ready()
    helper = int(log.read_text().split()[1])
    assert child.pid is not None
    if own_session:  # of a killed child it could not be found
        await child.stop()
    else:
        os.kill(child.pid, signal.SIGKILL)
    await eventually(lambda: not executes(helper))
    await child.stop()


async def test_the_log_of_a_child_that_dies_again_and_again_is_rotated(tmp_path: Path) -> None:
    config = msgspec.structs.replace(QUICK, log_max_bytes=4_096, log_keep=1)
    child = Child(_spec("dying", "print('x' * 5_000); raise SystemExit(1)"), tmp_path / "dying.log", config)
    child.start()
    await eventually(lambda: child.restarts >= 5)
    await child.stop()
    assert len(child.log.read_text()) < 2 * 5_000
    assert len(os.listdir(tmp_path)) == 2  # noqa: PTH208


async def test_stopping_while_it_waits_to_restart_does_not_start_it_again(tmp_path: Path) -> None:
    slow = LocalConfig(restart_first_s=3600.0, restart_max_s=3600.0, stable_after_s=3600.0)
    child = Child(_spec("patient", SLEEPER), tmp_path / "patient.log", slow)
    child.start()
    await child.ready()
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    await eventually(lambda: child.state is State.WAITING)
    await child.stop()
    assert child.pid is None


async def _never() -> bool:
    return False


async def test_the_cpu_time_of_a_process_is_its_own(tmp_path: Path) -> None:
    busy = Child(_spec("busy", "while True: pass"), tmp_path / "busy.log", QUICK)
    idle = Child(_spec("idle", SLEEPER), tmp_path / "idle.log", QUICK)
    assert busy.cpu_s is None
    for child in (busy, idle):
        child.start()
        await child.ready()
    await eventually(lambda: (busy.cpu_s or 0.0) > 0.3)
    assert (idle.cpu_s or 0.0) < 0.3
    await asyncio.gather(busy.stop(), idle.stop())
    assert busy.cpu_s is None
