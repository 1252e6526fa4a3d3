"""Settings of a process's log and of its traces of requests."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from contracts.fixed import Fixed


class LoggingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The log of our processes on stderr, which `up` collects in files."""

    format: Literal["text", "json"] = "text"
    """`text`: lines for people. `json`: one JSON object a line, with the request, its organization and its trace where
    a line is about one."""
    access: bool = False
    """A gateway logs a line for each ended request to its inference API: caller, status and duration. It never logs the
    content."""


class TracingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """OpenTelemetry spans of requests, from gateway, router and embedded engines."""

    otlp_endpoint: str = ""
    """URL of a collector's OTLP/HTTP receiver, such as `http://127.0.0.1:4318`; `/v1/traces` is added. Empty: no
    tracing."""
    otlp_headers_file: str = ""
    """File with headers for the collector, such as its token: an absolute path, read at the start. One header a line,
    such as `authorization=Bearer …`."""
    otlp_headers_env: str = ""
    """The same from an environment variable, in capitals; of gateways, router and engines. Headers are separated by
    commas."""
    otlp_certificate_file: str = ""
    """Certificates (PEM) that authenticate an https collector; empty: the public authorities'."""
    sample_ratio: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.01
    """Share of the requests that are traced, chosen at random by the gateway; router and engines follow its choice."""
    trust_client_sampling: bool = False
    """Follow the sampling decision in a request's `traceparent`. For clients of your own: others could have every
    request traced."""
    service_name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)] = "slipstream"
    """Prefix of `service.name`: `slipstream-gateway`, `slipstream-router`, `slipstream-engine`."""
    timeout_s: Fixed[Annotated[float, msgspec.Meta(gt=0, le=300)]] = 10.0
    """Longest time to deliver one batch of spans, retries included; then the batch is dropped."""
    queue_spans: Fixed[Annotated[int, msgspec.Meta(ge=64, le=1_000_000)]] = 4_096
    """Spans that may wait for the collector, in each process; further ones are dropped and counted."""
