"""One request through real processes is one tree of spans, under the client's trace, with nothing of its content."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from tests.deployment import Deployment, deployment
from tests.fakes.collector import Collector, Exported, collector

pytestmark = pytest.mark.nightly
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
MARKER = "xylophone-quartz"
PHASES = ("auth", "limit", "route", "place", "prefill", "engine", "first_token", "decode", "stream")


@pytest.fixture(scope="module")
def there() -> Iterator[Collector]:
    with collector() as running:
        yield running


@pytest.fixture(scope="module")
async def traced(there: Collector) -> AsyncIterator[Deployment]:
    environment = {
        "SLIPSTREAM_TRACING__OTLP_ENDPOINT": there.url,
        "SLIPSTREAM_TRACING__SAMPLE_RATIO": "1",
        "SLIPSTREAM_LOGGING__FORMAT": "json",
    }
    async with deployment(environment=environment) as running:
        yield running


def tree(spans: list[Exported], root: Exported) -> str:
    """As indented text, children in order of their beginning."""
    lines = []

    def add(span: Exported, depth: int) -> None:
        lines.append("  " * depth + f"{span.service.removeprefix('slipstream-')}: {span.name}")
        below = [each for each in spans if each.parent_id == span.span_id]
        for child in sorted(below, key=lambda each: (each.start_ns, -each.end_ns)):
            add(child, depth + 1)

    add(root, 0)
    return "\n".join(lines)


async def test_a_request_is_one_tree_from_the_client_to_the_engine(traced: Deployment, there: Collector) -> None:
    body = {
        "model": "slipstream-chat",
        "messages": [{"role": "user", "content": f"Repeat: {MARKER}"}],
        "stream": True,
        "max_tokens": 12,
        "user": f"user-{MARKER}",
    }
    headers = {
        "authorization": f"Bearer {traced.key}",
        "traceparent": f"00-{TRACE}-{SPAN}-00",
        "tracestate": "vendor=note",
        "x-marker": MARKER,
    }
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{traced.url}/v1/chat/completions", json=body, headers=headers) as answer,
    ):
        assert answer.status == 200
        request_id = answer.headers["x-request-id"]
        assert "traceparent" not in answer.headers
        text = (await answer.read()).decode()
    assert "[DONE]" in text

    route = "POST /v1/chat/completions"
    spans = await asyncio.to_thread(there.wait_for, *PHASES, route)
    mine = [span for span in spans if span.trace_id == TRACE]
    (root,) = (span for span in mine if span.parent_id == SPAN)
    assert tree(mine, root) == "\n".join(
        (
            f"gateway: {route}",
            "  gateway: auth",
            "  gateway: limit",
            "  gateway: route",
            "    router: place",
            "  gateway: chat slipstream-chat",
            "    gateway: engine",
            f"    engine: {route}",
            "      engine: queue",
            "      engine: prefill",
            "      engine: decode",
            "    gateway: first_token",
            "    gateway: decode",
            "  gateway: stream",
        )
    )
    assert len(mine) == len({span.span_id for span in mine})
    assert root.parent_is_remote
    assert root.state == "vendor=note"
    for span in mine:
        above = next((each for each in mine if each.span_id == span.parent_id), None)
        assert span.end_ns >= span.start_ns
        if above is not None and above.service == span.service:
            assert above.start_ns <= span.start_ns
            assert span.end_ns <= above.end_ns + 1_000

    rows = await traced.ledger(request_id)
    told = root.attributes
    assert told["slipstream.request_id"] == request_id
    assert told["slipstream.organization_id"] == str(rows[0]["organization_id"])
    assert told["gen_ai.operation.name"] == "chat"
    assert told["gen_ai.request.model"] == told["gen_ai.response.model"] == "slipstream-chat"
    assert told["gen_ai.request.max_tokens"] == 12
    assert told["gen_ai.usage.input_tokens"] == rows[0]["prompt_tokens"]
    assert told["gen_ai.usage.output_tokens"] == rows[0]["completion_tokens"]
    assert told["gen_ai.response.finish_reasons"] in (["stop"], ["length"])
    assert told["http.response.status_code"] == 200
    assert 0 < told["gen_ai.response.time_to_first_chunk"] < (root.end_ns - root.start_ns) / 1e9

    exported = b"".join(there.bodies)
    assert request_id.encode() in exported
    for secret in (MARKER.encode(), traced.key.encode(), b"Bearer", b"authorization"):
        assert secret not in exported

    shown = await traced.command("requests", "show", request_id)
    assert f"trace {TRACE}" in shown


async def test_what_is_refused_is_traced_too_without_what_was_asked(traced: Deployment, there: Collector) -> None:
    headers = {"authorization": f"Bearer {traced.key}"}
    body = {"model": f"model-{MARKER}", "messages": [{"role": "user", "content": MARKER}]}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{traced.url}/v1/chat/completions", json=body, headers=headers) as answer,
    ):
        assert answer.status == 404
        request_id = answer.headers["x-request-id"]

    root = await asyncio.to_thread(
        there.wait_until, lambda span: span.attributes.get("slipstream.request_id") == request_id
    )
    assert (root.attributes["http.response.status_code"], root.attributes["error.type"]) == (404, "model_not_found")
    assert not root.failed
    assert MARKER.encode() not in b"".join(there.bodies)
