"""Batches, and responses in the background, of a whole deployment as `up` starts it: every process is killed while they
run, and each line and each response has one result, which the ledger bills once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest

from contracts.backoff import Backoff
from tests.deployment import Deployment, deployment, fake_fleet
from tests.fakes.process import fake_engine
from tests.waiting import eventually

TOKEN = "engine-token"
LINES = int(os.environ.get("TEST_BATCH_LINES", "50000"))
GUARD_S = 3_600.0
KILLED = ("worker", "gateway-1", "valkey", "router", "postgres")
BILLED = """
SELECT count(*) AS rows, count(DISTINCT request_id) AS requests, sum(prompt_tokens + completion_tokens) AS tokens
  FROM gateway.usage_events WHERE billed AND gateway_id = $1
"""
RESPONSES = """
SELECT count(*) AS rows, sum((convert_from(response, 'utf8')::jsonb #>> '{usage,total_tokens}')::int) AS tokens
  FROM gateway.responses WHERE status IS NULL
"""
AT_ONCE = 20
"""Responses in the background that are created before each kill."""


async def shown(sdk: openai.AsyncOpenAI, batch_id: str, done: int) -> Any:
    """The batch, once so many lines have a result or it has ended."""
    backoff = Backoff(0.1, 0.2)
    async with asyncio.timeout(GUARD_S):
        while True:
            try:
                batch = await sdk.batches.retrieve(batch_id)
            except (openai.APIConnectionError, openai.InternalServerError):
                pass
            else:
                counts = batch.request_counts
                assert counts is not None
                if batch.status in ("completed", "failed", "expired") or counts.completed >= done:
                    return batch
            await asyncio.sleep(backoff.next_s())


async def finished(sdk: openai.AsyncOpenAI, response_id: str) -> Any:
    async def found() -> Any:
        response = await sdk.responses.retrieve(response_id)
        return None if response.status in ("queued", "in_progress") else response

    return await eventually(found)


@asynccontextmanager
async def sdk_of(running: Deployment) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=running.key, max_retries=5) as sdk:
        yield sdk


@pytest.mark.system
@pytest.mark.nightly
async def test_kill_9_of_every_process_loses_no_line_and_bills_none_twice() -> None:
    async with fake_engine(token=TOKEN) as engine:
        await engine.control(ttft_s=1.0, tokens=4)
        async with deployment(environment=fake_fleet(engine.url), token=TOKEN) as running, sdk_of(running) as sdk:
            pids = {name: await running.pid(name) for name in KILLED}
            text = b"\n".join(_line(number) for number in range(LINES))
            file = await sdk.files.create(file=("in.jsonl", text), purpose="batch")
            began_s = time.monotonic()
            made = await sdk.batches.create(
                input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
            )
            created: list[str] = []
            for number, name in enumerate(KILLED, start=1):
                batch = await shown(sdk, made.id, LINES * number // (len(KILLED) + 1))
                assert batch.status == "in_progress", f"it ended before {name} was killed"
                created += [
                    (await sdk.responses.create(model="fake", input=str(at), background=True, max_output_tokens=8)).id
                    for at in range(AT_ONCE)
                ]
                os.kill(pids[name], signal.SIGKILL)
            batch = await shown(sdk, made.id, LINES + 1)
            took_s = time.monotonic() - began_s
            assert (batch.status, batch.error_file_id) == ("completed", None)
            content = (await sdk.files.content(batch.output_file_id)).text
            output = [json.loads(line) for line in content.splitlines()]
            assert [each["custom_id"] for each in output] == [f"c{number}" for number in range(LINES)]
            ids = {each["response"]["request_id"] for each in output}
            assert len(ids) == LINES
            tokens = sum(each["response"]["body"]["usage"]["total_tokens"] for each in output)
            for each in created:
                assert (await finished(sdk, each)).status == "completed"
            async with running.database() as database:
                billed, whole = await database.fetchrow(BILLED, "responses"), await database.fetchrow(RESPONSES)
                assert (billed["rows"], billed["requests"], billed["tokens"]) == (whole["rows"], *whole)
                assert whole["rows"] >= len(created)  # a creation whose answer a kill took was repeated
                row = await database.fetchrow(BILLED, "batches")
                runs = await database.fetchval("SELECT count(*) FROM gateway.usage_events WHERE purpose = 'batches'")
                left = await database.fetchval("SELECT count(*) FROM gateway.batch_results")
            assert (row["rows"], row["requests"], row["tokens"], left) == (LINES, LINES, tokens, 0)
            assert batch.usage.total_tokens == tokens
            print(f"{LINES} lines in {took_s:.1f} s, {LINES / took_s:.0f} lines/s, {runs} rows of runs")


def _line(number: int) -> bytes:
    body = {"model": "fake", "messages": [{"role": "user", "content": f"line {number}"}], "max_tokens": 8}
    return json.dumps(
        {"custom_id": f"c{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
    ).encode()
