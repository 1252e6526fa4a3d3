"""Settings of a process's log and of its traces of requests."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from contracts.fixed import Fixed


class LoggingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Logs of Slipstream's processes on stderr, which `up` collects in files."""

    format: Literal["text", "json"] = "text"
    """`text`: lines for people. `json`: one JSON object per line, with the request, its organization and its trace if
    the line concerns a request."""
    access: bool = False
    """Whether a gateway logs a line for each finished request to its inference API, with caller, status and duration.
    It never logs the content."""


class TracingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """OpenTelemetry spans of requests, from gateway, router and embedded engines."""

    otlp_endpoint: str = ""
    """URL of a collector's OTLP/HTTP receiver, such as `http://127.0.0.1:4318`; `/v1/traces` is added. Empty: no
    tracing."""
    otlp_headers_file: str = ""
    """Absolute path of a file with headers for the collector, such as a token. It is read at the start, with one header
    per line, such as `authorization=Bearer …`."""
    otlp_headers_env: str = ""
    """Name, in capitals, of an environment variable of gateways, router and engines with the same headers, separated by
    commas."""
    otlp_certificate_file: str = ""
    """Certificates (PEM) that authenticate an https collector. Empty: those of public authorities."""
    sample_ratio: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.01
    """Share of requests that are traced. The gateway draws them at random; router and engines follow its decision."""
    trust_client_sampling: bool = False
    """Follow the sampling decision in a request's `traceparent`. Use it only if all clients are your own, because any
    client could then have each request traced."""
    service_name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)] = "slipstream"
    """Prefix of `service.name`: `slipstream-gateway`, `slipstream-router`, `slipstream-engine`."""
    timeout_s: Fixed[Annotated[float, msgspec.Meta(gt=0, le=300)]] = 10.0
    """Time limit for delivering one batch of spans, including retries. After it, the batch is dropped."""
    queue_spans: Fixed[Annotated[int, msgspec.Meta(ge=64, le=1_000_000)]] = 4_096
    """Maximum number of spans that wait for the collector in each process. Further ones are dropped and counted."""
