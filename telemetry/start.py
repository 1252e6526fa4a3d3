"""Starts a process's tracing by its settings. Without a collector, OpenTelemetry is not even imported."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry

from contracts.errors import ConfigError
from telemetry.collector_headers import collector_headers
from telemetry.config import TracingConfig
from telemetry.metrics import SpanMetrics

if TYPE_CHECKING:
    from telemetry.tracing import Tracing

TRACES = "/v1/traces"


@contextlib.asynccontextmanager
async def running_tracing(
    config: TracingConfig,
    process: str,
    registry: CollectorRegistry,
    instance: str = "",
    environ: Mapping[str, str] = os.environ,
) -> AsyncIterator[Tracing | None]:
    """Tracing for the block; None if it is off.

    process: `gateway`, `router` or `engine`. instance: distinguishes it from others of its kind; if empty, its process
    id does. registry: receives the metrics of spans. Raises ConfigError for invalid settings, but not for an
    unreachable collector.
    """
    if not config.otlp_endpoint:
        yield None
        return
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    from telemetry.collector_session import CollectorSession
    from telemetry.span_queue import SpanQueue
    from telemetry.tracing import FinishedSpans, Tracing

    endpoint, certificate = _endpoint(config), _certificate(config)
    exporter = OTLPSpanExporter(
        endpoint=endpoint,
        certificate_file=certificate,
        headers=collector_headers(config, environ),
        timeout=config.timeout_s,
        compression=Compression.Gzip,
        session=CollectorSession(),
    )
    resource = {
        "service.name": f"{config.service_name}-{process}",
        "service.version": version("slipstream"),
        "service.instance.id": instance or str(os.getpid()),
    }
    metrics, make = SpanMetrics(registry), FinishedSpans(resource).of
    tracing = Tracing(SpanQueue(exporter, make, config.queue_spans, metrics, endpoint))
    try:
        yield tracing
    finally:
        await asyncio.to_thread(tracing.stop)


def _endpoint(config: TracingConfig) -> str:
    """The full URL. Raises ConfigError."""
    field, url = "tracing.otlp_endpoint", config.otlp_endpoint
    if "@" in url:  # not repeated in the message: it may contain a password
        raise ConfigError(f"{field}: a secret never stands in the settings: use tracing.otlp_headers_file", param=field)
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        fits = fits and not (parts.query or parts.fragment)
    except ValueError:
        fits = False
    if not fits:
        raise ConfigError(
            f"{field}: must be the http or https URL of a collector's OTLP/HTTP receiver, "
            f"such as http://127.0.0.1:4318; got {url!r}",
            param=field,
        )
    return url.rstrip("/").removesuffix(TRACES) + TRACES


def _certificate(config: TracingConfig) -> str | None:
    """The path, if any. Raises ConfigError if it is not a file."""
    field, path = "tracing.otlp_certificate_file", config.otlp_certificate_file
    if path and not Path(path).is_file():
        raise ConfigError(f"{field}: there is no file {path}; give one with PEM certificates", param=field)
    return path or None
