"""The same on the embedded engine with the shipped models: its own usage by id, and its counters, beside the ledger."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import httpx2
import msgspec
import pytest

from control.billing.reconciliation import EngineCounters, reconcile
from engines.http.keys import EngineKeys
from gateway.metering.journal.records import engine_request_id
from tests.billing.comparison import Counted, Row, compare
from tests.billing.customer import End, ask
from tests.deployment import Deployment, deployment
from tests.e2e.failures.processes import all_ready, kill
from tests.e2e.failures.scrape import scrape, total
from tests.waiting import eventually

REQUESTS = 150
AT_ONCE = 6


def requests(key: str, seed: int) -> Iterator[tuple[bytes, int | None]]:
    """Requests to both tiers and after how many events their customer leaves."""
    choose = random.Random(seed)
    for number in range(REQUESTS):
        tokens = choose.randint(2, 40)
        common = {"max_tokens": tokens, "stream": True, "temperature": 1.0, "n": choose.choice([1, 1, 2])}
        if choose.random() < 0.7:
            path, body = (
                "completions",
                {"model": "slipstream-code", "prompt": f"# file {number % 7}\nimport ", **common},
            )
        else:
            messages = [{"role": "user", "content": f"What is {number % 9} plus 4?"}]
            path, body = "chat/completions", {"model": "slipstream-chat", "messages": messages, **common}
        data = msgspec.json.encode(body)
        head = (
            f"POST /v1/{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        yield head.encode() + data, choose.randint(0, tokens + 1) if choose.random() < 0.3 else None


@pytest.mark.nightly
@pytest.mark.timeout(900)
async def test_the_ledger_is_what_the_embedded_engines_counted() -> None:
    async with deployment(environment={"SLIPSTREAM_LOCAL__RESTART_FIRST_S": "0.1"}) as running:
        await _sampled(running)
        waiting = requests(running.key, seed=3)
        done = 0

        async def customer() -> None:
            nonlocal done
            for request, leave_after in waiting:
                while True:
                    end = (found := await ask(running.port, request, leave_after, None)).ended.result()
                    if end is End.REFUSED or (end is End.BROKEN and not found.status):
                        await asyncio.sleep(0.05)
                        continue
                    assert end is not End.FAILED, found._tail
                    break
                done += 1
                if done == REQUESTS // 2:
                    await kill(running, "gateway-1")

        await asyncio.gather(*(customer() for _ in range(AT_ONCE)))
        await all_ready(running)
        rows = await _rows(running)
        counted = await _counted(running, rows)
        result = compare(counted, rows)
        print(
            msgspec.json.encode(
                {"requests": REQUESTS, "rows": result.rows, "error_tokens": result.error_tokens}
            ).decode()
        )
        assert result.right, result
        assert result.attempts > REQUESTS * 0.8
        # and in sum: the counters of the engines' /metrics
        assert await _sampled(running) == []
        async with running.database() as database:
            engine, ledger = await database.fetchrow(
                "SELECT sum(engine_completion_tokens)::bigint, sum(ledger_completion_tokens_max)::bigint"
                "  FROM gateway.reconciliations"
            )
        assert engine == ledger == sum(row.completion_tokens for row in rows) > 0


async def _sampled(running: Deployment) -> list[Any]:
    keys = EngineKeys(str, {}, (running.data / "engine.metrics.token").read_text)
    return await asyncio.to_thread(
        reconcile, running.database_url, EngineCounters(lambda: keys), window_s=0, settle_s=0, clocks_s=0
    )


async def _rows(running: Deployment) -> list[Row]:
    """All, once no more come."""
    rows: list[Row] = []

    async def stable() -> bool:
        nonlocal rows
        if total(await scrape(running), "slipstream_ledger_backlog_rows") or total(
            await scrape(running), "slipstream_active_requests"
        ):
            return False
        async with running.database() as database:
            found = await database.fetch(f"SELECT {', '.join(Row.__struct_fields__)} FROM gateway.usage_events")
        before, rows = len(rows), [Row(*row) for row in found]
        return len(rows) == before >= REQUESTS * 0.8

    await eventually(stable)
    return rows


async def _counted(running: Deployment, rows: list[Row]) -> list[Counted]:
    """What the engines say of each attempt."""
    headers = {"Authorization": f"Bearer {(running.data / 'token').read_text()}"}
    processes = await running.processes()
    urls = [process["url"] for name, process in processes.items() if name.startswith("engine-")]
    counted = []
    async with httpx2.AsyncClient(headers=headers) as client:
        for row in rows:
            name = engine_request_id(row.request_id, row.attempt)
            for url in urls:
                answer = await client.get(f"{url}/usage", params={"rid": name})
                if answer.status_code == 200:
                    usage = answer.json()["usage"]
                    counted.append(Counted(name, usage["prompt_tokens"], usage["completion_tokens"]))
    return counted
