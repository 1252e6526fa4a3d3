"""Requests through a whole deployment: `slipstream diagnose slo` and `top` tell what a client asked for, row by row."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import msgspec

from contracts.objectives import OBJECTIVES
from control.slo.judgement import TraceRow, judge
from tests.deployment import Deployment
from tests.fakes.process import FakeEngineProcess

KEPT: dict[str, Any] = {"tokens": 3}
LATE: dict[str, Any] = {"tokens": 3, "ttft_s": 0.8}
SLOW: dict[str, Any] = {"tokens": 6, "inter_token_s": 0.06}
BROKEN: dict[str, Any] = {"tokens": 5, "error_after_tokens": 2}
ASKED = (KEPT, KEPT, KEPT, LATE, SLOW, BROKEN)
ROWS = """
SELECT status, error_code, total_ms, ttft_ms, tpot_ms, itl_max_ms, completion_tokens
  FROM gateway.request_traces WHERE organization_id = $1::uuid
"""


async def ask(deployment: Deployment, key: str, script: dict[str, Any], **changes: object) -> None:
    body = {
        "model": "fake",
        "stream": True,
        "max_tokens": 50,
        "messages": [{"role": "user", "content": f"mock:{msgspec.json.encode(script).decode()}"}],
        **changes,
    }
    headers = {"authorization": f"Bearer {key}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"{deployment.url}/v1/chat/completions", json=body) as response,
    ):
        await response.read()


async def test_what_clients_asked_for_is_told_by_slo_and_top(
    faked: Deployment, fresh_engines: list[FakeEngineProcess]
) -> None:
    key = await faked.make_key("--organization", "judged", "--project", "web", "--name", "one")
    for script in ASKED:
        await ask(faked, key, script)
    await ask(faked, key, KEPT, temperature="hot")  # refused, and not counted
    async with faked.database() as database:
        whose = await database.fetchval("SELECT id::text FROM gateway.organizations WHERE name = 'judged'")
        while True:
            rows = await database.fetch(ROWS, whose)
            if len(rows) == len(ASKED) + 1:
                break
            await asyncio.sleep(0.05)
    [promised] = [each for each in OBJECTIVES if (each.tier.value, each.length.value) == ("chat", "short")]
    judged = [judge(TraceRow(**row), promised) for row in rows]
    assert sum(each.counted for each in judged) == len(ASKED)
    assert sum(each.good for each in judged) <= 3, "late, slow and broken ones are not"
    assert not all(each.ttft_kept for each in judged if each.counted)
    told = msgspec.json.decode(await faked.command("diagnose", "slo", "--organization", "judged", "--json"))
    [total] = told["totals"]
    assert (total["tier"], total["length"], total["requests"]) == ("chat", "short", len(ASKED))
    for name, kept in (
        ("counted", [each.counted for each in judged]),
        ("good", [each.good for each in judged]),
        ("ttft_kept", [each.ttft_kept for each in judged]),
        ("tpot_kept", [each.tpot_kept for each in judged]),
        ("failed", [row["error_code"] == "engine_failed" for row in rows]),
    ):
        assert total[name] == sum(kept), name
    assert total["failed"] == 1
    assert total["completion_tokens"] == sum(row["completion_tokens"] or 0 for row in rows)
    assert total["good_tokens"] == sum(
        row["completion_tokens"] for row, each in zip(rows, judged, strict=True) if each.good
    )
    shot = msgspec.json.decode(await faked.command("top", "--json", "--window", "3600"))
    assert shot["router"] is None
    assert shot["gateways"] == 2
    [pool] = shot["pools"]
    assert (pool["pool"], pool["replicas"], pool["usable"], pool["queued"]) == ("fake", 2, 2, 0)
    assert pool["load"]["requests"] >= len(ASKED)
