"""A real engine whose clients send grammars without end: others are served, leavers used nothing, SIGTERM is heard."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from contracts.errors import Overloaded
from engines.embedded.history import RequestUsage, UsageHistory
from engines.embedded.preparation import MOST_OVERTAKEN, Preparation
from tests.engines.embedded.engine_process import QUESTION, TOKEN, Process, healthy, usage_of
from tests.engines.embedded.test_grammar_compiler import ENDLESS
from tests.engines.embedded.tiny import SHIPPED

CHAT = str(SHIPPED / "slipstream-chat")
UNUSED = {
    "prompt_tokens": 0,
    "total_tokens": 0,
    "completion_tokens": 0,
    "prompt_tokens_details": {"cached_tokens": 0},
    "reasoning_tokens": 0,
}


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    processes: list[Process] = []

    def starter(**grammar: Any) -> Process:
        processes.append(Process(model=CHAT, drain_s=60, grammar=grammar))
        return processes[-1]

    yield starter
    for process in processes:
        process.child.kill()
        process.child.communicate()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {TOKEN}"}) as session:
        yield session


def ask(
    session: aiohttp.ClientSession, process: Process, tenant: str, schema: dict[str, Any] | None, **more: Any
) -> asyncio.Task[tuple[int, Any]]:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}} if schema else None
    body = {"model": "slipstream-chat", "messages": QUESTION, "max_tokens": 8, "cache_salt": tenant, **more}

    async def answer() -> tuple[int, Any]:
        asked = {**body, "response_format": form} if form else body
        async with session.post(f"{process.url}/v1/chat/completions", json=asked) as answer:
            return answer.status, await answer.json()

    return asyncio.create_task(answer())


def compilers(process: Process) -> list[int]:
    """The ids of the engine's processes for grammars."""
    tasks = Path(f"/proc/{process.child.pid}/task")
    return [int(pid) for task in tasks.iterdir() for pid in (task / "children").read_text().split()]


def used_s(pid: int) -> float:
    """CPU seconds of a process; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def compiling(process: Process) -> int:
    """The process that has worked for longer than it takes to start."""
    async with asyncio.timeout(60):
        while True:
            for pid in compilers(process):
                if used_s(pid) > 1.5:
                    return pid
            await asyncio.sleep(0.02)


async def gone(pid: int) -> None:
    """Return when the process has ended."""
    async with asyncio.timeout(30):
        while True:
            if not used_s(pid):
                return
            await asyncio.sleep(0.02)


async def final_usage(session: aiohttp.ClientSession, process: Process, rid: str) -> tuple[int, Any]:
    """As soon as it is known."""
    async with asyncio.timeout(30):
        while True:
            found = await usage_of(session, process.url, rid)
            if found[0] != 404:
                return found
            await asyncio.sleep(0.02)


async def test_a_schema_without_end_is_a_clients_error_and_others_are_served_meanwhile(
    start: Callable[..., Process], session: aiohttp.ClientSession
) -> None:
    process = start(compile_timeout_s=3)
    await healthy(process)
    attack = ask(session, process, "attacker", ENDLESS)
    for schema in (
        None,
        {"type": "object", "properties": {"b": {"type": "string"}}},
        {"type": "integer", "minimum": 7},
    ):
        status, _ = await ask(session, process, "other", schema)
        assert status == 200
    status, refused = await attack
    assert (status, refused["param"]) == (400, "response_format.json_schema")
    assert "longer than 3 s" in refused["message"]


async def test_a_client_that_leaves_during_a_compile_ends_it_and_used_nothing(
    start: Callable[..., Process], session: aiohttp.ClientSession
) -> None:
    process = start(compile_timeout_s=60)
    await healthy(process)
    leaving = ask(session, process, "a", ENDLESS, rid="req_left")
    pid = await compiling(process)
    leaving.cancel()
    await gone(pid)
    assert await final_usage(session, process, "req_left") == (200, {"rid": "req_left", "usage": UNUSED})


async def test_a_request_is_aborted_by_id_during_a_compile(
    start: Callable[..., Process], session: aiohttp.ClientSession
) -> None:
    process = start(compile_timeout_s=60)
    await healthy(process)
    aborted = ask(session, process, "a", ENDLESS, rid="req_aborted")
    pid = await compiling(process)
    async with session.post(f"{process.url}/abort_request", json={"rid": "req_abo"}) as answer:
        assert answer.status == 200
    # so that a gateway whose client is still there may try another engine
    status, _ = await aborted
    assert status == 503
    await gone(pid)
    assert await usage_of(session, process.url, "req_aborted") == (200, {"rid": "req_aborted", "usage": UNUSED})


async def test_sigterm_ends_a_compile_under_way(start: Callable[..., Process], session: aiohttp.ClientSession) -> None:
    process = start(compile_timeout_s=60)
    await healthy(process)
    refused = ask(session, process, "a", ENDLESS)
    pid = await compiling(process)
    began_s = time.monotonic()
    process.child.send_signal(signal.SIGTERM)
    assert (await refused)[0] == 503
    await asyncio.to_thread(process.child.wait, 30)
    # without the mend it would last as long as the compile, which no one has seen end
    assert time.monotonic() - began_s < 30
    assert process.child.returncode == 0
    await gone(pid)
    assert "Traceback" not in process.end()


async def test_an_engine_that_is_killed_leaves_no_compile_behind(
    start: Callable[..., Process], session: aiohttp.ClientSession
) -> None:
    process = start(compile_timeout_s=2)
    await healthy(process)
    attack = ask(session, process, "a", ENDLESS)
    children = compilers(process)
    assert children
    process.child.kill()
    await asyncio.gather(attack, return_exceptions=True)
    for pid in children:
        await gone(pid)


async def test_of_aborts_that_overtake_their_requests_the_newest_are_known_for_a_while() -> None:
    history = UsageHistory(4)
    preparation = Preparation(history)

    async def prepared(rid: str) -> bool:
        async def work() -> bool:
            return True

        async def never() -> None:
            await asyncio.Event().wait()

        with contextlib.suppress(Overloaded):
            return await preparation.run(rid, work(), lambda _: asyncio.create_task(never()))
        return False

    for number in range(MOST_OVERTAKEN + 1):
        preparation.abort_ahead(f"r{number}")
    assert await prepared("r0"), "the oldest is forgotten"
    assert not await prepared("r1")
    assert history.get("r1") == RequestUsage(0, 0, 0, 0)
    assert await prepared("r1"), "that counts once"
    preparation._overtaken["r2"] = asyncio.get_running_loop().time()
    assert await prepared("r2"), "it is too long ago"
