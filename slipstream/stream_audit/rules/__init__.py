"""All rules, in the order of the report. Each is a function of the measurements, in its own file."""

from __future__ import annotations

from collections.abc import Callable

from slipstream.stream_audit.measured import Measured
from slipstream.stream_audit.rules import (
    certificate,
    client_reuse,
    compression,
    delivery,
    distance,
    first_event,
    http_version,
    idle_cut,
    name_lookup,
    request_headers,
    response_headers,
    tls_version,
    upstream_reuse,
)
from slipstream.stream_audit.verdict import Verdict

Rule = Callable[[Measured], Verdict]

RULES: tuple[Rule, ...] = (
    name_lookup.judge,
    distance.judge,
    tls_version.judge,
    certificate.judge,
    client_reuse.judge,
    http_version.judge,
    upstream_reuse.judge,
    first_event.judge,
    delivery.judge,
    compression.judge,
    response_headers.judge,
    request_headers.judge,
    idle_cut.judge,
)


def judge(measured: Measured) -> tuple[Verdict, ...]:
    """Every rule's verdict."""
    return tuple(rule(measured) for rule in RULES)
