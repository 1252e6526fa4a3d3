"""A batch by the OpenAI SDK against a whole deployment on the shipped models: its own worker runs it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai

from contracts.backoff import Backoff
from tests.deployment import Deployment

GUARD_S = 60.0
COUNTRIES = {"france": "Paris", "italy": "Rome", "norway": "Oslo"}


async def test_a_batch_is_answered_as_live_requests_are(client: openai.AsyncOpenAI, embedded: Deployment) -> None:
    lines: list[Any] = [
        {
            "custom_id": country,
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {
                "model": "slipstream-chat",
                "messages": [{"role": "user", "content": f"What is the capital of {country.title()}?"}],
                "max_tokens": 20,
                "temperature": 0,
            },
        }
        for country in COUNTRIES
    ]
    file = await client.files.create(file=("in.jsonl", "\n".join(map(json.dumps, lines)).encode()), purpose="batch")
    batch = await client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    backoff = Backoff(0.1, 0.5)
    async with asyncio.timeout(GUARD_S):
        while batch.status not in ("completed", "failed", "expired"):
            await asyncio.sleep(backoff.next_s())
            batch = await client.batches.retrieve(batch.id)
    assert (batch.status, batch.model, batch.errors) == ("completed", "slipstream-chat", None)
    assert batch.output_file_id is not None
    output = [json.loads(line) for line in (await client.files.content(batch.output_file_id)).text.splitlines()]
    answers = {each["custom_id"]: each["response"]["body"] for each in output}
    for line in lines:
        live = await client.chat.completions.create(**line["body"])
        assert answers[line["custom_id"]]["choices"][0]["message"]["content"] == live.choices[0].message.content
    assert COUNTRIES["france"] in answers["france"]["choices"][0]["message"]["content"]
    rows = await embedded.ledger(*(each["response"]["request_id"] for each in output))
    billed = [row for row in rows if row["billed"]]
    assert sorted(row["request_id"] for row in billed) == sorted(each["response"]["request_id"] for each in output)
    assert sum(row["completion_tokens"] for row in billed) == sum(
        each["response"]["body"]["usage"]["completion_tokens"] for each in output
    )
