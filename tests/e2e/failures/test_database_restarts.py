"""PostgreSQL and Valkey killed under load: no answer is lost, no row is lost or doubled, and refusals are clean."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import openai
import pytest

from infra.local.folders import DataFolder
from tests.deployment import ROOT, Deployment, free_port
from tests.e2e.failures.customers import Customers
from tests.e2e.failures.processes import all_ready, fresh_connections, kill, no_restarts, process_ids
from tests.e2e.failures.scrape import samples_in, scrape, scrape_each, total
from tests.fakes.process import FakeEngineProcess
from tests.waiting import eventually

MESSAGES: list[Any] = [{"role": "user", "content": "Hello."}]


def client_of(url: str, key: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, http_client=fresh_connections())


async def ledger_by_engine_id(trial: Deployment, rids: set[str]) -> dict[str, dict[str, Any]]:
    """The ledger's row of every attempt the engines had, once all are there, by the engine's id for it."""
    rows: dict[str, dict[str, Any]] = {}

    async def all_there() -> bool:
        async with trial.database() as database:
            for row in await database.fetch("SELECT * FROM gateway.usage_events WHERE replica_id IS NOT NULL"):
                attempt = f"-{row['attempt']}" if row["attempt"] else ""
                rows[row["request_id"] + attempt] = dict(row)
        return rids <= set(rows)

    await eventually(all_there)
    return rows


async def until_restarted(trial: Deployment, name: str, old_pid: int) -> None:
    """Return once the supervisor has started it again and PostgreSQL takes connections."""

    async def serves() -> bool:
        with contextlib.suppress(OSError, asyncpg.PostgresError):
            async with trial.database():
                return process_ids(trial).get(name, old_pid) != old_pid
        return False

    await eventually(serves)


async def test_under_load_every_answer_has_its_row_and_every_row_its_count(
    trial: Deployment, trial_engines: list[FakeEngineProcess]
) -> None:
    limited = await trial.make_key(
        "--requests-per-minute", "1000000", "--tokens-per-minute", "900000000", "--max-concurrency", "1000"
    )
    before = process_ids(trial)
    async with Customers(trial, [trial.key, limited], count=8, seed=7) as customers:
        await customers.have_read(40)
        for victim in ("postgres", "valkey", "postgres"):
            old_pid = await kill(trial, victim)
            await customers.have_read(60)
            await until_restarted(trial, victim, old_pid)
            await all_ready(trial)
            await customers.have_read(40)
    after = process_ids(trial)
    restarted = {name for name in before if before[name] != after[name]}
    assert restarted == {"postgres", "valkey"}
    assert set(customers.refused) <= {"auth_unavailable", "limiter_unavailable"}

    records = {record["rid"]: record for engine in trial_engines for record in await engine.recorded()}
    rows = await ledger_by_engine_id(trial, set(records))
    # everything an engine did is in the ledger, with the engine's own numbers
    for rid, record in records.items():
        row = rows[rid]
        told = (row["prompt_tokens"], row["completion_tokens"], row["outcome"])
        assert told == (record["prompt_tokens"], record["tokens"], "exact"), row
        # what an engine worked off for a customer that left is billed, a prompt alone too
        assert row["billed"] == (row["status"] == 200 or row["prompt_tokens"] + row["completion_tokens"] > 0), row
    # every answer is billed once, and for no less than was read
    for request_id, tokens_read in customers.answered.items():
        assert rows[request_id]["billed"]
        assert rows[request_id]["completion_tokens"] >= tokens_read
    async with trial.database() as database:
        doubled = await database.fetch(
            "SELECT request_id FROM gateway.usage_events WHERE billed GROUP BY 1 HAVING count(*) > 1"
        )
    assert doubled == []
    # no engine was at fault, so none was tried twice, and each was told when a customer left
    assert all(rows[rid]["attempt"] == 0 for rid in records)
    assert not any(record["disconnected"] for record in records.values())
    # all of this was foreseen
    for name in ("gateway-1", "gateway-2", "router"):
        assert "Traceback" not in trial.log(name)
        assert " ERROR " not in trial.log(name)


@contextlib.asynccontextmanager
async def gateway_in_local_mode(trial: Deployment) -> AsyncIterator[tuple[str, str]]:
    """One more gateway of the deployment, on a port of its own; its URL, and that of its metrics."""
    port, metrics_port = free_port(), free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "slipstream", "gateway", "--instance", "gateway-local",
        "--config", str(DataFolder(trial.data).settings_file), "--metrics-port", str(metrics_port),
        stderr=asyncio.subprocess.DEVNULL, cwd=ROOT,
        env={
            **os.environ,
            "SLIPSTREAM_GATEWAY__PORT": str(port),
            "SLIPSTREAM_GATEWAY__LIMITS__WHEN_UNAVAILABLE": "local",
        },
    )  # fmt: skip
    try:
        url = f"http://127.0.0.1:{port}"

        async def ready() -> bool:
            assert process.returncode is None
            async with fresh_connections() as client:
                with contextlib.suppress(Exception):
                    return (await client.get(f"{url}/readyz")).status_code == 200
            return False

        await eventually(ready)
        yield url, f"http://127.0.0.1:{metrics_port}/metrics"
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()


async def test_without_valkey_limited_keys_are_refused_or_held_to_a_local_share(
    trial: Deployment, trial_engines: list[FakeEngineProcess]
) -> None:
    key = await trial.make_key("--requests-per-minute", "4")
    roomy = await trial.make_key("--requests-per-minute", "1000")
    async with (
        gateway_in_local_mode(trial) as (local_url, local_metrics_url),
        client_of(local_url, key) as local,
        client_of(trial.url, roomy) as limited,
        client_of(trial.url, trial.key) as unlimited,
    ):
        async with no_restarts(trial):
            await kill(trial, "valkey")
            for _ in range(6):
                with pytest.raises(openai.InternalServerError) as refused:
                    await limited.chat.completions.create(model="fake", messages=MESSAGES)
                assert (refused.value.status_code, refused.value.code) == (503, "limiter_unavailable")
                assert int(refused.value.response.headers["retry-after"]) >= 1
                await unlimited.chat.completions.create(model="fake", messages=MESSAGES)
            # two gateways share a limit: to this one belongs half of four
            for left in ("1", "0"):
                raw = await local.chat.completions.with_raw_response.create(model="fake", messages=MESSAGES)
                assert raw.headers["x-ratelimit-limit-requests"] == "2"
                assert raw.headers["x-ratelimit-remaining-requests"] == left
            with pytest.raises(openai.RateLimitError) as over:
                await local.chat.completions.create(model="fake", messages=MESSAGES)
            assert "2 requests per minute" in over.value.message
            told = await scrape_each(trial)
            assert max(total(samples, "slipstream_limits_mode") for samples in told.values()) == 2
            assert total(await scrape(trial), "slipstream_limits_unavailable_total", handled="refused") >= 6
            async with fresh_connections() as client:
                samples = samples_in(await client.get(local_metrics_url))
            assert total(samples, "slipstream_limits_mode") == 1
            assert total(samples, "slipstream_limits_unavailable_total", handled="local") >= 3

        async def counted_again() -> bool:
            async with fresh_connections() as client:
                samples = samples_in(await client.get(local_metrics_url))
            return total(await scrape(trial), "slipstream_limits_mode") == total(samples, "slipstream_limits_mode") == 0

        await eventually(counted_again)
        for _ in range(6):
            raw = await limited.chat.completions.with_raw_response.create(model="fake", messages=MESSAGES)
            assert raw.headers["x-ratelimit-limit-requests"] == "1000"
        raw = await local.chat.completions.with_raw_response.create(model="fake", messages=MESSAGES)
        assert raw.headers["x-ratelimit-limit-requests"] == "4"


async def test_without_postgres_keys_fail_closed_and_usage_waits_in_the_journal(
    trial: Deployment, trial_engines: list[FakeEngineProcess]
) -> None:
    for engine in trial_engines:
        await engine.control(tokens=100_000, inter_token_s=0.01)
    async with client_of(trial.url, trial.key) as client:
        raw = await client.chat.completions.with_raw_response.create(
            model="fake", messages=MESSAGES, max_tokens=30, stream=True
        )
        request_id = raw.headers["x-request-id"]
        async with no_restarts(trial):
            old_pid = await kill(trial, "postgres")

            async def fails_closed() -> bool:
                try:
                    await client.models.list()
                except openai.InternalServerError as error:
                    assert error.code == "auth_unavailable"
                    assert int(error.response.headers["retry-after"]) >= 1
                    return True
                return False

            await eventually(fails_closed)
            # a stream that was admitted is served to its end, and its usage outlives the outage
            chunks = [chunk async for chunk in raw.parse()]
            assert chunks[-1].choices[0].finish_reason == "length"
        await until_restarted(trial, "postgres", old_pid)
        [row] = await trial.ledger(request_id)
        assert (row["completion_tokens"], row["outcome"], row["billed"]) == (30, "exact", True)

        async def trusted_again() -> bool:
            with contextlib.suppress(openai.InternalServerError):
                return bool((await client.models.list()).data)
            return False

        await eventually(trusted_again)
