"""A deployment whose disk is full or has become read-only: it refuses and goes on, and every book is kept."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import openai
import pytest
import redis.asyncio as redis

from infra.local.child import State
from infra.local.control import ask
from infra.local.folders import DataFolder
from tests.deployment import Deployment, deployment, fake_fleet
from tests.e2e.failures.live_stream import LiveStream, open_stream
from tests.e2e.failures.processes import fresh_connections, kill, process_ids
from tests.e2e.failures.scrape import scrape_each, total
from tests.fakes.process import FakeEngineProcess, fake_engine
from tests.small_disk import small_disk
from tests.waiting import eventually

TOKEN = "token-of-the-full-disk"
MESSAGES: list[Any] = [{"role": "user", "content": "Hello."}]
DISK_BYTES = 250_000_000
TOKENS = 1_000
"""Of a running stream: with a pause after each, far more than come before the engine is stopped."""
AT_ONCE = 60
"""Requests whose records do not fit into what is left of a file's last block."""
UNDISTURBED = ("gateway-1", "router", "valkey")


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngineProcess]:
    """An engine whose answers take seconds."""
    async with fake_engine(token=TOKEN) as process:
        await process.control(tokens=TOKENS, inter_token_s=0.005)
        yield process


async def test_a_full_disk_refuses_keeps_the_books_and_recovers(engine: FakeEngineProcess) -> None:
    with small_disk("ext4", DISK_BYTES) as disk:
        async with running_on(disk.path / "data", engine) as platform, client_of(platform) as client:
            before = process_ids(platform)
            streams = await ended_on(disk.fill, platform, client, engine)
            assert [error.code for error in streams.values()] == ["journal_unavailable"] * len(streams)
            assert await parts(platform) == {"journal"}
            assert total((await scrape_each(platform))["gateway-1"], "slipstream_journal_healthy") == 0
            await until_valkey_refuses(platform)
            for log in (platform.data / "logs").iterdir():
                disk.top_up(log)
            await kill(platform, "worker")  # begins anew where it cannot say a word
            assert await answer(client) == "journal_unavailable"
            after = process_ids(platform)
            assert {name: after[name] for name in UNDISTURBED} == {name: before[name] for name in UNDISTURBED}

            disk.free()
            await engine.control(tokens=5, inter_token_s=0)
            await eventually(lambda: served(client))
            rows = await platform.ledger(*(stream.request_id for stream in streams))
            assert {row["request_id"]: row["completion_tokens"] for row in rows} == {
                stream.request_id: TOKENS for stream in streams
            }
            assert {(row["outcome"], row["finish"]) for row in rows} == {("exact", "complete")}
            recorded = [record for record in await engine.recorded() if record["tokens"]]
            every = await platform.ledger(*(record["rid"].rpartition("-")[2] for record in recorded))
            assert sum(row["completion_tokens"] for row in every) == sum(record["tokens"] for record in recorded)
            assert '"wrong_amounts":0' in await platform.command("usage", "verify", "--json")

            restarts = await restarts_once_all_run(platform)
            assert sum(restarts[name] for name in restarts if name.startswith("worker")) == 1
            assert not any(restarts[name] for name in UNDISTURBED)


@pytest.mark.nightly
async def test_a_disk_that_became_read_only_refuses_and_lets_itself_be_stopped(engine: FakeEngineProcess) -> None:
    with small_disk("ext4", DISK_BYTES) as disk:
        async with running_on(disk.path / "data", engine) as platform, client_of(platform) as client:
            before = process_ids(platform)
            streams = await ended_on(disk.make_read_only, platform, client, engine)
            assert [error.code for error in streams.values()] == ["journal_unavailable"] * len(streams)
            assert "journal" in await parts(platform)
            after = process_ids(platform)
            assert {name: after[name] for name in UNDISTURBED} == {name: before[name] for name in UNDISTURBED}
            platform.process.send_signal(signal.SIGINT)
            said, _ = await platform.process.communicate()
            assert platform.process.returncode == 0, said.decode()
            assert "Traceback" not in said.decode()


def running_on(data: Path, engine: FakeEngineProcess) -> AbstractAsyncContextManager[Deployment]:
    """A deployment with its data folder there."""
    return deployment(
        data=data,
        token=TOKEN,
        # this dialect can be asked what a past request used
        environment={**fake_fleet(engine.url, driver="embedded"), "SLIPSTREAM_LOCAL__RESTART_MAX_S": "0.5"},
    )


def client_of(platform: Deployment) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=f"{platform.url}/v1", api_key=platform.key, max_retries=0, http_client=fresh_connections()
    )


async def ended_on(
    break_disk: Callable[[], None], platform: Deployment, client: openai.AsyncOpenAI, engine: FakeEngineProcess
) -> dict[LiveStream, openai.APIError]:
    """Streams that were running when the disk broke, each with the error at its end.

    The engine stands still from before the disk breaks until the gateway has noticed.
    """
    streams = [await open_stream(client, platform) for _ in range(4)]
    engine.process.send_signal(signal.SIGSTOP)
    waiting = []
    try:
        await asyncio.to_thread(break_disk)
        waiting = [asyncio.create_task(answer(client)) for _ in range(AT_ONCE)]
        for first in asyncio.as_completed(waiting):
            if await first == "journal_unavailable":
                break
        else:
            raise AssertionError("nothing was refused")
    finally:
        engine.process.send_signal(signal.SIGCONT)
    failures = {stream: await stream.failure() for stream in streams}
    # What the rest became depends on who noticed the disk first; none of it was served.
    assert set(await asyncio.gather(*waiting)) <= {"journal_unavailable", "auth_unavailable", "no_engine_available"}
    assert [stream.tokens for stream in streams] == [TOKENS] * len(streams)
    return failures


async def answer(client: openai.AsyncOpenAI) -> str | None:
    """A request's error code; None: it was served."""
    try:
        await client.chat.completions.create(model="fake", messages=MESSAGES, max_tokens=3_000)
    except openai.APIStatusError as error:
        assert error.status_code == 503
        return error.code
    return None


async def served(client: openai.AsyncOpenAI) -> bool:
    return await answer(client) is None


async def parts(platform: Deployment) -> set[str]:
    """What is missing, as readiness names it."""
    async with fresh_connections() as client:
        response = await client.get(f"{platform.url}/readyz")
    assert response.status_code == 503
    return {name for name, there in response.json()["parts"].items() if not there}


async def restarts_once_all_run(platform: Deployment) -> dict[str, int]:
    """How often each process was started again, by name, once all are ready."""
    found: dict[str, int] = {}

    async def all_run() -> bool:
        status = await ask(DataFolder(platform.data).control_socket, "status")
        assert status is not None
        found.update({process.name: process.restarts for process in status.processes})
        return all(process.state is State.READY for process in status.processes)

    await eventually(all_run)
    return found


async def until_valkey_refuses(platform: Deployment) -> None:
    """Return once it has noticed that it cannot keep what it is told."""
    async with redis.from_url(f"unix://{DataFolder(platform.data).valkey_socket}") as valkey:

        async def refuses() -> bool:
            try:
                await valkey.set("of-a-test", bytes(4_096))
            except redis.ResponseError as error:
                return "MISCONF" in str(error)
            return False

        await eventually(refuses)
