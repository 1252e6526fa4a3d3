"""Files and batches by the OpenAI SDK, through a real gateway, router and engine; a runner as the worker has it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import openai
import pytest

from control.batches.folder_store import FolderStore
from control.batches.runner import BatchRunner
from control.billing.invoice import invoice_of
from gateway.auth.delegation import BACKGROUND_PREFIX, PREFIX, VALID_S, delegated
from gateway.auth.keys import hash_of
from tests.control.killable import working
from tests.gateway.slow_platform import SlowPlatform
from tests.waiting import eventually

PRICE = """
INSERT INTO gateway.prices (model, valid_from, input_micro, cached_input_micro, cache_write_micro, output_micro,
                            offline_percent)
VALUES ('wide', now() - interval '1 day', 1000010001, 1000010001, 0, 3000030001, 50)
"""
ENDED = ("completed", "failed", "expired", "cancelled")


@pytest.fixture
async def sdk(platform: SlowPlatform) -> AsyncIterator[openai.AsyncOpenAI]:
    key = (await platform.add_key(new_organization=True)).secret
    async with openai.AsyncOpenAI(base_url=f"{platform.url}/v1", api_key=key, max_retries=0) as client:
        yield client


@pytest.fixture
async def work(platform: SlowPlatform) -> AsyncIterator[asyncio.Event]:
    store = FolderStore(platform.data.path / "files")
    runner = BatchRunner(platform.database_url, platform.url, lambda: platform.pepper, lambda: store, None)
    async with working(runner) as due:
        yield due


def line(number: int, **more: Any) -> dict[str, Any]:
    body = {"model": "wide", "messages": [{"role": "user", "content": f"line {number}"}], "max_tokens": 4, **more}
    return {"custom_id": f"c{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}


async def uploaded(sdk: openai.AsyncOpenAI, lines: list[dict[str, Any]]) -> str:
    text = "\n".join(map(json.dumps, lines)).encode()
    return (await sdk.files.create(file=("in.jsonl", text), purpose="batch")).id


async def ended(sdk: openai.AsyncOpenAI, batch_id: str) -> Any:
    async def found() -> Any:
        batch = await sdk.batches.retrieve(batch_id)
        return batch if batch.status in ENDED else None

    return await eventually(found)


async def test_a_batch_from_upload_to_output_is_billed_at_half_its_price(
    platform: SlowPlatform, sdk: openai.AsyncOpenAI, work: asyncio.Event
) -> None:
    await platform.database.execute(PRICE)
    file_id = await uploaded(sdk, [*(line(number) for number in range(1, 21)), line(21, temperature="hot")])
    made = await sdk.batches.create(
        input_file_id=file_id, endpoint="/v1/chat/completions", completion_window="24h", metadata={"run": "7"}
    )
    assert (made.status, made.object, made.expires_at) == ("validating", "batch", made.created_at + 86_400)
    with pytest.raises(openai.ConflictError, match="needs this file"):
        await sdk.files.delete(file_id)
    work.set()
    batch = await ended(sdk, made.id)
    assert (batch.status, batch.model, batch.metadata) == ("completed", "wide", {"run": "7"})
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == (21, 20, 1)
    output = [json.loads(text) for text in (await sdk.files.content(batch.output_file_id)).text.splitlines()]
    assert [each["custom_id"] for each in output] == [f"c{number}" for number in range(1, 21)]
    assert {each["response"]["body"]["model"] for each in output} == {"wide"}
    [error] = [json.loads(text) for text in (await sdk.files.content(batch.error_file_id)).text.splitlines()]
    assert (error["custom_id"], error["response"]["status_code"]) == ("c21", 400)
    assert error["response"]["body"]["error"]["param"] == "temperature"
    tokens = sum(each["response"]["body"]["usage"]["total_tokens"] for each in output)
    assert batch.usage.total_tokens == tokens
    for each in output:
        [run, bill] = await eventually(partial(_rows, platform, each["response"]["request_id"]))
        assert (run["attempt"], run["purpose"], run["billed"], run["amount_micro"]) == (0, "batches", False, 0)
        assert (bill["purpose"], bill["billed"], bill["price_percent"], bill["replica_id"]) == (None, True, 50, None)
        same = ("prompt_tokens", "completion_tokens", "model", "tier", "endpoint", "key_id", "organization_id")
        assert [run[name] for name in same] == [bill[name] for name in same]
        exact = bill["prompt_tokens"] * 1_000_010_001 + bill["completion_tokens"] * 3_000_030_001
        assert bill["amount_micro"] == (exact * 50 + 50_000_000) // 100_000_000
    begin = datetime.now(UTC) - timedelta(hours=1)
    invoice = await invoice_of(platform.database, bill["organization_id"], begin, begin + timedelta(hours=2), "USD")
    [priced] = invoice.lines
    assert (priced.price_percent, priced.requests, priced.input_micro) == (50, 20, 1_000_010_001)
    assert priced.unrounded_micro * 200 == 2 * 50 * (
        priced.prompt_tokens * Decimal("1000.010001") + priced.completion_tokens * Decimal("3000.030001")
    )
    assert abs(priced.rounding_micro) <= 10


@pytest.mark.parametrize(
    ("endpoint", "body", "kind"),
    [
        ("/v1/embeddings", {"model": "vectors", "input": "heron"}, "list"),
        ("/v1/responses", {"model": "wide", "input": "heron"}, "response"),
    ],
)
async def test_lines_of_other_endpoints_are_billed_once(
    platform: SlowPlatform, sdk: openai.AsyncOpenAI, work: asyncio.Event, endpoint: Any, body: Any, kind: str
) -> None:
    lines = [{"custom_id": str(number), "method": "POST", "url": endpoint, "body": body} for number in range(3)]
    made = await sdk.batches.create(
        input_file_id=await uploaded(sdk, lines), endpoint=endpoint, completion_window="24h"
    )
    work.set()
    batch = await ended(sdk, made.id)
    assert (batch.status, batch.request_counts.completed) == ("completed", 3)
    for text in (await sdk.files.content(batch.output_file_id)).text.splitlines():
        answer = json.loads(text)["response"]
        assert answer["body"]["object"] == kind
        rows = await eventually(partial(_rows, platform, answer["request_id"]))
        assert [row["billed"] for row in rows] == [False, True]


async def _rows(platform: SlowPlatform, request_id: str) -> Any:
    query = "SELECT * FROM gateway.usage_events WHERE request_id = $1 ORDER BY attempt"
    rows = await platform.database.fetch(query, request_id)
    return rows if len(rows) == 2 else None


async def test_lists_pages_and_what_other_projects_have(platform: SlowPlatform, sdk: openai.AsyncOpenAI) -> None:
    ids = [await uploaded(sdk, [line(number)]) for number in range(3)]
    listed = await sdk.files.list(limit=2)
    assert [file.id for file in listed.data] == ids[:0:-1]
    assert [file.id async for file in listed] == ids[::-1]
    assert [file.id async for file in await sdk.files.list(order="asc")] == ids
    assert [file.id async for file in await sdk.files.list(purpose="batch_output")] == []
    file = await sdk.files.retrieve(ids[0])
    assert (file.purpose, file.filename, file.expires_at) == ("batch", "in.jsonl", file.created_at + 30 * 86_400)
    assert json.loads((await sdk.files.content(ids[0])).text)["custom_id"] == "c0"
    made = [
        await sdk.batches.create(input_file_id=each, endpoint="/v1/chat/completions", completion_window="24h")
        for each in ids
    ]
    assert [batch.id async for batch in await sdk.batches.list(limit=1)] == [batch.id for batch in made[::-1]]
    other_key = (await platform.add_key(new_organization=True)).secret
    other = sdk.with_options(api_key=other_key)
    for asked in (
        other.files.retrieve(ids[0]),
        other.files.content(ids[0]),
        other.files.delete(ids[0]),
        other.batches.retrieve(made[0].id),
        other.batches.cancel(made[0].id),
        other.batches.create(input_file_id=ids[0], endpoint="/v1/chat/completions", completion_window="24h"),
    ):
        with pytest.raises(openai.NotFoundError):
            await asked
    assert [file async for file in await other.files.list()] == []
    for batch in made:
        assert (await sdk.batches.cancel(batch.id)).status == "cancelling"


async def test_uploads_that_are_refused(sdk: openai.AsyncOpenAI) -> None:
    usual: dict[str, Any] = {"file": ("in.jsonl", b"{}"), "purpose": "batch"}
    for changes, said in (
        ({"purpose": "fine-tune"}, "It must be 'batch'"),
        ({"file": ("empty.jsonl", b"")}, "it is empty"),
        ({"expires_after": {"anchor": "created_at", "seconds": 10}}, "'seconds'"),
        ({"extra_body": {"colour": "red"}}, "Unknown form field 'colour'"),
    ):
        with pytest.raises(openai.BadRequestError, match=said):
            await sdk.files.create(**{**usual, **changes})


async def test_the_key_may_be_in_either_header_but_not_a_different_one_in_each(sdk: openai.AsyncOpenAI) -> None:
    file_id = await uploaded(sdk, [line(1)])
    headers: dict[str, str | openai.Omit] = {"Authorization": openai.Omit(), "x-api-key": sdk.api_key}
    assert (await sdk.files.retrieve(file_id, extra_headers=headers)).id == file_id
    with pytest.raises(openai.AuthenticationError, match="hold different keys"):
        await sdk.batches.list(extra_headers={"x-api-key": "sk-slip-other"})


async def test_batches_that_are_refused(sdk: openai.AsyncOpenAI) -> None:
    usual: dict[str, Any] = {"endpoint": "/v1/chat/completions", "completion_window": "24h"}
    with pytest.raises(openai.NotFoundError, match="no file"):
        await sdk.batches.create(input_file_id="file-\0", **usual)
    file_id = await uploaded(sdk, [line(1)])
    for changes, said in (
        ({"endpoint": "/v1/images/generations"}, "'endpoint'"),
        ({"completion_window": "1h"}, "'completion_window'"),
        ({"metadata": {"a": "b" * 513}}, "'metadata"),
        ({"extra_body": {"priority": 1}}, "'priority'"),
    ):
        with pytest.raises(openai.BadRequestError, match=said):
            await sdk.batches.create(input_file_id=file_id, **{**usual, **changes})
    with pytest.raises(openai.BadRequestError, match="'limit'"):
        await sdk.batches.list(limit=101)
    with pytest.raises(openai.NotFoundError, match="no batch"):
        await sdk.batches.retrieve("batch_x")


async def test_a_token_of_the_worker_is_of_no_use_to_others(platform: SlowPlatform, sdk: openai.AsyncOpenAI) -> None:
    """It is made with the pepper, ends, cannot be changed, has the lowest class, and opens no files."""
    key_hash = hash_of(sdk.api_key, platform.pepper)
    token = delegated(key_hash, platform.pepper, time.time())
    ask: dict[str, Any] = {"model": "wide", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
    ours = sdk.with_options(api_key=token)
    raw = await ours.chat.completions.with_raw_response.create(**ask)
    assert "x-slipstream-line-closed" in raw.headers
    trace = await platform.trace(raw.headers["x-request-id"])
    assert trace["service_class"] == "offline"
    theirs = await sdk.chat.completions.with_raw_response.create(**ask)
    assert "x-slipstream-line-closed" not in theirs.headers
    with pytest.raises(openai.PermissionDeniedError):
        await ours.files.list()
    with pytest.raises(openai.BadRequestError, match="not allowed in a batch line"):
        await ours.responses.create(model="wide", input="hello", background=True)
    other = (await platform.add_key(new_organization=True)).hash
    body, _, signature = token.rpartition(".")
    for forged in (
        delegated(key_hash, b"another pepper", time.time()),
        delegated(key_hash, platform.pepper, time.time() - VALID_S - 1),
        f"{body}0.{signature}",
        token.replace(key_hash.hex(), other.hex()),
        token.replace(PREFIX, BACKGROUND_PREFIX),
        "sk-slip-line-",
    ):
        with pytest.raises(openai.AuthenticationError):
            await sdk.with_options(api_key=forged).chat.completions.create(**ask)
    await platform.database.execute("UPDATE gateway.api_keys SET revoked_at = now() WHERE hash = $1", key_hash)

    async def refused() -> bool:
        try:
            await ours.chat.completions.create(**ask)
        except openai.AuthenticationError as error:
            return error.code == "revoked_api_key"
        return False

    await eventually(refused)
