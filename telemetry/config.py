"""Settings of what processes tell about themselves: their log, and traces of requests."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec


class LoggingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What processes of ours write to stderr, which `up` collects in files."""

    format: Literal["text", "json"] = "text"
    """`text`: lines for people. `json`: one JSON object a line, with the request, its organization and its trace where
    a line is about one."""
    access: bool = False
    """Whether a gateway writes a line for each request to its inference API when it has ended: who asked, what was
    answered, how long it took. Nothing of its content."""


class TracingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """OpenTelemetry spans of requests, from gateway, router and embedded engines."""

    otlp_endpoint: str = ""
    """URL of a collector's OTLP/HTTP receiver, as `http://127.0.0.1:4318`; `/v1/traces` is added. Empty: no tracing."""
    otlp_headers_file: str = ""
    """File with headers for the collector, such as its token: an absolute path, read at the start. A line each, as
    `authorization=Bearer …`."""
    otlp_headers_env: str = ""
    """The same from an environment variable, in capitals; of gateways, router and engines. A comma between two."""
    otlp_certificate_file: str = ""
    """Certificates (PEM) that an https collector is trusted by; empty: the public authorities'."""
    sample_ratio: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.01
    """Part of the requests that are traced, chosen at random by the gateway; router and engines follow its choice."""
    trust_client_sampling: bool = False
    """Whether a request whose `traceparent` says that its client's trace is sampled, or is not, is treated so too. For
    clients of your own: others could have every request traced."""
    service_name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)] = "slipstream"
    """What `service.name` begins with: `slipstream-gateway`, `slipstream-router`, `slipstream-engine`."""
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=300)] = 10.0
    """How long one batch of spans may take to be delivered, repetitions included; then it is given up."""
    queue_spans: Annotated[int, msgspec.Meta(ge=64, le=1_000_000)] = 4_096
    """Spans that may wait for the collector, in each process; beyond it they are dropped and counted."""
