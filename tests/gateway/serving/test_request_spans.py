"""The spans of requests through the real endpoint, pipeline and router, as a collector receives them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from typing import NamedTuple

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from contracts.phases import Phase, PhaseClock
from gateway.serving.request_spans import RequestSpans
from gateway.serving.request_trace import TracedClock
from router.server import RouterServer
from router.spans import PlacementSpans
from telemetry import span_queue
from telemetry.config import TracingConfig
from telemetry.json_lines import JsonLines
from telemetry.sampler import Sampler
from telemetry.start import running_tracing
from telemetry.trace_context import parse
from tests.fakes.collector import Collector, Exported, collector
from tests.gateway.serving.harness import Harness, harness
from tests.gateway.serving.test_wire_seam import STREAM, WHOLE, endpoint
from tests.gateway.serving.test_with_router import routed

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
ROOT = "POST /complete"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for company."""
    monkeypatch.setattr(span_queue, "EVERY_S", 0.02)


class Platform(NamedTuple):
    """What is traced."""

    harness: Harness
    router: RouterServer
    session: aiohttp.ClientSession
    url: str
    there: Collector

    async def spans(self) -> dict[str, Exported]:
        """By name, once a request's have come."""
        there = await asyncio.to_thread(self.there.wait_for, ROOT)
        return {span.name: span for span in there}


@contextlib.asynccontextmanager
async def traced(ratio: float = 1.0) -> AsyncIterator[Platform]:
    """Gateway and router in this process, each with its own tracing."""
    with collector() as there:
        config = TracingConfig(otlp_endpoint=there.url, sample_ratio=ratio)
        async with contextlib.AsyncExitStack() as stack:
            ours, routers = [
                await stack.enter_async_context(running_tracing(config, process, CollectorRegistry()))
                for process in ("gateway", "router")
            ]
            assert ours is not None
            assert routers is not None
            platform = await stack.enter_async_context(harness())
            server, _ = await stack.enter_async_context(routed(platform))
            server.spans = PlacementSpans(routers)
            parts, session, url = await stack.enter_async_context(endpoint(platform))
            parts.spans = RequestSpans(ours, Sampler(ratio))
            yield Platform(platform, server, session, url, there)


def sent_to_engines(platform: Platform) -> list[str]:
    """Each `traceparent` that an engine was sent with a prompt."""
    return [
        record.headers["traceparent"]
        for engine in platform.harness.engines
        for record in engine.records.values()
        if "traceparent" in record.headers
    ]


async def test_a_request_its_placement_and_its_engine_are_one_trace() -> None:
    async with traced() as platform:
        async with platform.session.post(platform.url, data=STREAM, headers=PARENT) as response:
            await response.read()
            assert "traceparent" not in response.headers
        await asyncio.to_thread(platform.there.wait_for, ROOT, "place")
        spans = await platform.spans()
        root, attempt = spans[ROOT], spans["text_completion m"]
        assert {span.trace_id for span in spans.values()} == {TRACE}
        assert root.parent_id == SPAN
        assert {name: span.parent_id for name, span in spans.items() if name not in (ROOT, "place")} == {
            **dict.fromkeys(("auth", "limit", "route", "stream", attempt.name), root.span_id),
            **dict.fromkeys(("engine", "first_token", "decode"), attempt.span_id),
        }
        assert spans["place"].parent_id == spans["route"].span_id
        assert sent_to_engines(platform) == [f"00-{TRACE}-{attempt.span_id}-01"]
        assert root.attributes["gen_ai.usage.output_tokens"] == 4
        assert root.attributes["gen_ai.response.finish_reasons"] == ["length"]
        assert attempt.attributes["server.address"] == "127.0.0.1"


async def test_one_that_is_not_sampled_costs_no_span_and_its_engine_is_told_so() -> None:
    async with traced(0.0) as platform:
        for headers in ({}, PARENT):
            async with platform.session.post(platform.url, data=WHOLE, headers=headers) as response:
                await response.read()
        told = [parse(header) for header in sent_to_engines(platform)]
        assert [parent is not None and not parent.sampled for parent in told] == [True, True]
        assert any(parent is not None and parent.trace_id == TRACE for parent in told)
    assert platform.there.headers == []


async def test_an_engine_that_fails_has_a_span_and_the_one_after_it_too() -> None:
    async with traced() as platform:
        platform.harness.engines[0].control(b'{"status": 500}')
        platform.harness.engines[1].control(b'{"status": 500}')
        async with platform.session.post(platform.url, data=WHOLE) as response:
            assert response.status >= 500
        await platform.spans()
        spans = platform.there.spans
        attempts = sorted(
            (span for span in spans if span.name == "text_completion m"),
            key=lambda span: span.attributes["slipstream.attempt"],
        )
        assert [span.attributes["slipstream.attempt"] for span in attempts] == [0, 1]
        assert len({span.attributes["slipstream.replica"] for span in attempts}) == 2
        assert all(span.failed and span.attributes["error.type"] == "engine_failed" for span in attempts)
        assert attempts[0].end_ns <= attempts[1].start_ns
        (root,) = (span for span in spans if span.name == ROOT)
        assert root.failed
        assert root.attributes["slipstream.attempts"] == 2


async def test_a_log_line_about_a_request_names_it_and_its_trace() -> None:
    lines: list[str] = []
    handler = logging.Handler()
    handler.setFormatter(JsonLines())
    handler.emit = lambda record: lines.append(handler.format(record))  # type: ignore[method-assign]
    logging.getLogger("gateway.serving.pipeline").addHandler(handler)
    try:
        async with traced() as platform:
            for engine in platform.harness.engines:
                engine.control(b'{"status": 500}')
            async with platform.session.post(platform.url, data=WHOLE, headers=PARENT) as response:
                request_id = response.headers["line-id"]
                await response.read()
    finally:
        logging.getLogger("gateway.serving.pipeline").removeHandler(handler)
    told = [json.loads(line) for line in lines]
    assert len(told) == 2, "one for each engine that failed"
    for line in told:
        assert (line["request_id"], line["trace_id"], line["level"]) == (request_id, TRACE, "WARNING")
        assert line["organization_id"] == "organization"


async def test_what_is_refused_before_it_is_understood_says_nothing_of_what_was_sent() -> None:
    async with traced() as platform:
        async with platform.session.post(platform.url, data=b'{"text":"marker-of-text","x":1}') as response:
            assert response.status == 400
        root = (await platform.spans())[ROOT]
        assert (root.attributes["http.response.status_code"], root.failed) == (400, False)
        assert root.attributes["error.type"] == "unknown_parameter"
        assert b"marker-of-text" not in b"".join(platform.there.bodies)


async def test_a_request_that_no_engine_is_left_for_is_a_refused_placement() -> None:
    async with traced() as platform:
        for replica in platform.router.dispatcher.fleet.replicas.values():
            replica.draining = True
        async with platform.session.post(platform.url, data=WHOLE) as response:
            assert response.status == 503
        await asyncio.to_thread(platform.there.wait_for, ROOT, "place")
        spans = await platform.spans()
        place, route = spans["place"], spans["route"]
        assert place.parent_id == route.span_id
        assert place.attributes["slipstream.finish"] == "refused"
        assert place.failed
        assert route.failed
        assert route.end_ns <= spans["stream"].start_ns
        assert platform.router.spans is not None
        assert platform.router.spans._waiting == {}


@pytest.mark.parametrize("header", [f"ff-{TRACE}-{SPAN}-01", "x" * 4_000])
async def test_a_malformed_parent_is_none(header: str) -> None:
    async with traced() as platform:
        async with platform.session.post(platform.url, data=WHOLE, headers={"traceparent": header}) as response:
            assert response.status == 200
            await response.read()
        root = (await platform.spans())[ROOT]
        assert root.parent_id == ""
        assert root.trace_id not in ("", TRACE)


@given(
    steps=st.lists(st.tuples(st.sampled_from(list(Phase)), st.floats(0, 1), st.none() | st.floats(-1, 2)), max_size=20)
)
def test_a_clock_that_remembers_tells_the_same_times(
    steps: list[tuple[Phase, float, float | None]],
) -> None:
    """The plain clock beside it, on the same readings."""
    now_s = [0.0]
    plain, traced_clock = PhaseClock(lambda: now_s[0]), TracedClock(lambda: now_s[0])
    for phase, step_s, inner_s in steps:
        now_s[0] += step_s
        for clock in (plain, traced_clock):
            if inner_s is None:
                clock.end(phase)
            else:
                clock.end_split(phase, Phase.QUEUE, inner_s)
    assert traced_clock.durations_s == plain.durations_s
    assert len(traced_clock.marks) == len(steps)
    ends = [0.0, *(mark.ended_s for mark in traced_clock.marks)]
    assert [mark.began_s for mark in traced_clock.marks] == ends[:-1]
