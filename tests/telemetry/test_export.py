"""Spans reach a collector; one that is away, mute or broken delays nothing, neither a request nor a stop."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.semconv._incubating.attributes import error_attributes, gen_ai_attributes
from opentelemetry.semconv.attributes import http_attributes, server_attributes
from prometheus_client import CollectorRegistry

from contracts.errors import ConfigError
from telemetry import attributes, span_queue
from telemetry.config import TracingConfig
from telemetry.sampler import Sampler
from telemetry.span import Span
from telemetry.start import running_tracing
from tests.fakes.collector import Collector, collector

NOW_NS = time.time_ns()
MAX_TIMEOUT_S = 300.0


def one(name: str = "one", **more: object) -> Span:
    return Span(name, "", NOW_NS, NOW_NS + 1_000_000, **more)  # type: ignore[arg-type]


def counted(registry: CollectorRegistry, outcome: str) -> float:
    return registry.get_sample_value("slipstream_trace_spans_total", {"outcome": outcome}) or 0.0


async def exported(config: TracingConfig, spans: list[Span]) -> CollectorRegistry:
    """What a process that ends at once has sent."""
    registry = CollectorRegistry()
    async with running_tracing(config, "gateway", registry, instance="g1") as tracing:
        assert tracing is not None
        for span in spans:
            tracing.add(Sampler(1.0).begin("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=1"), [span])
    return registry


async def test_a_span_arrives_as_it_was() -> None:
    told = {attributes.STATUS_CODE: 200, attributes.FINISH_REASONS: ["stop"], attributes.STREAM: True}
    with collector() as there:
        span = one(kind="server", span_id="00f067aa0ba902b7", attributes=told, failed=True)
        registry = await exported(TracingConfig(otlp_endpoint=there.url, service_name="mine"), [span])
        (arrived,) = there.spans
    assert (arrived.name, arrived.kind, arrived.service) == ("one", "server", "mine-gateway")
    assert (arrived.trace_id, arrived.span_id) == ("0af7651916cd43dd8448eb211c80319c", "00f067aa0ba902b7")
    assert (arrived.start_ns, arrived.end_ns) == (NOW_NS, NOW_NS + 1_000_000)
    assert arrived.attributes == told
    assert arrived.failed
    assert counted(registry, "exported") == 1


async def test_off_is_off() -> None:
    registry = CollectorRegistry()
    async with running_tracing(TracingConfig(), "gateway", registry) as tracing:
        assert tracing is None
    assert not list(registry.collect())


async def test_headers_come_from_a_file_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text("authorization=Bearer secret\n\nx-scope-orgid=acme\n")
    with collector() as there:
        await exported(TracingConfig(otlp_endpoint=there.url, otlp_headers_file=str(file)), [one()])
        config = TracingConfig(otlp_endpoint=there.url + "/v1/traces", otlp_headers_env="COLLECTOR")
        environ = {"COLLECTOR": "authorization=Bearer other, x-scope-orgid=b"}
        async with running_tracing(config, "router", CollectorRegistry(), environ=environ) as tracing:
            assert tracing is not None
            tracing.add(Sampler(1.0).begin(""), [one()])
    assert [head["authorization"] for head in there.headers] == ["Bearer secret", "Bearer other"]
    assert [head["x-scope-orgid"] for head in there.headers] == ["acme", "b"]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"otlp_endpoint": "collector:4318"}, "must be the http or https URL"),
        ({"otlp_endpoint": "http://user:secret@collector"}, "a secret never stands in the settings"),
        ({"otlp_endpoint": "http://c:99999"}, "must be the http or https URL"),
        ({"otlp_endpoint": "http://user:secret@c:99999"}, "a secret never stands in the settings"),
        ({"otlp_endpoint": "https//user:secret@c"}, "a secret never stands in the settings"),
        ({"otlp_endpoint": "http://c", "otlp_headers_env": "authorization=Bearer secret"}, "must be the name of an"),
        ({"otlp_endpoint": "http://c", "otlp_headers_env": "NOT_SET"}, "NOT_SET is not set"),
        ({"otlp_endpoint": "http://c", "otlp_headers_file": "authorization=secret"}, "must be the absolute path"),
        ({"otlp_endpoint": "http://c", "otlp_headers_file": "/absent"}, "/absent cannot be read: No such file"),
        ({"otlp_endpoint": "http://c", "otlp_headers_file": "/a", "otlp_headers_env": "A"}, "give one of"),
        ({"otlp_endpoint": "http://c", "otlp_certificate_file": "/absent.pem"}, "there is no file /absent.pem"),
    ],
)
async def test_what_cannot_be_followed_stops_the_start(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        await exported(TracingConfig(**settings), [])
    assert "secret" not in caught.value.message.replace("a secret never stands", "")


async def test_a_header_that_is_none_is_not_repeated(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text("Bearer secret\n")
    with pytest.raises(ConfigError, match="header 1 is not a name") as caught:
        await exported(TracingConfig(otlp_endpoint="http://c", otlp_headers_file=str(file)), [])
    assert "secret" not in caught.value.message


def broken(there: Collector, how: str) -> str:
    """The URL of a collector that fails in this way."""
    if how == "away":
        return "http://127.0.0.1:9"
    there.mute = how == "mute"
    there.status = 200 if there.mute else int(how)
    return there.url


@pytest.mark.parametrize("how", ["away", "mute", "500", "503"])
async def test_a_collector_that_fails_delays_nothing(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request or a stop that waited for it would do so for longer than the test may last."""
    monkeypatch.setattr(span_queue, "STOP_S", 0.1)
    with collector() as there:
        config = TracingConfig(otlp_endpoint=broken(there, how), queue_spans=64, timeout_s=MAX_TIMEOUT_S)
        registry = CollectorRegistry()
        async with running_tracing(config, "gateway", registry) as tracing:
            assert tracing is not None
            for _ in range(400):
                tracing.add(Sampler(1.0).begin(""), [one()])
            assert counted(registry, "exported") == 0
    assert counted(registry, "dropped") > 0
    if how != "mute":  # that one answers at its end
        assert counted(registry, "exported") == 0


async def test_it_is_said_once_that_spans_are_lost_and_why(caplog: pytest.LogCaptureFixture) -> None:
    with collector() as there, caplog.at_level(logging.INFO):
        there.status = 401
        config = TracingConfig(otlp_endpoint=there.url)
        async with running_tracing(config, "gateway", CollectorRegistry()) as tracing:
            assert tracing is not None
            for batch in range(1, 3):
                for _ in range(256):
                    tracing.add(Sampler(1.0).begin(""), [one()])
                await asyncio.to_thread(there.wait_for_requests, batch)
            there.status = 200
            for _ in range(256):
                tracing.add(Sampler(1.0).begin(""), [one()])
            await asyncio.to_thread(there.wait_for_requests, 3)
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) == 1
    assert "401" in said[0]


def test_names_are_those_of_the_conventions() -> None:
    """The last release of the package that has gen_ai's names says that they moved, unchanged."""
    known = {
        value
        for module in (gen_ai_attributes, http_attributes, server_attributes, error_attributes)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str)
    }
    operations = {each.value for each in gen_ai_attributes.GenAiOperationNameValues}
    ours = {value for name, value in vars(attributes).items() if name.isupper()}
    assert {attributes.CHAT, attributes.TEXT_COMPLETION} <= operations
    rest = ours - {attributes.CHAT, attributes.TEXT_COMPLETION}
    assert {name for name in rest if not name.startswith("slipstream.")} <= known
