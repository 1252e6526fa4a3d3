"""Renders an audit: as JSON, and as text for people."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from slipstream.stream_audit.between import proxy_signs
from slipstream.stream_audit.measured import Measured, Stream
from slipstream.stream_audit.rules import judge
from slipstream.stream_audit.rules.delivery import CHECK as DELIVERY
from slipstream.stream_audit.verdict import Outcome, Verdict
from slipstream.table import wrapped

MARKS = {Outcome.FINDING: "FOUND", Outcome.CLEAR: "ok", Outcome.NOT_ENOUGH_EVIDENCE: "not enough evidence"}


class StreamSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One request, with the times at which its events were sent and arrived, each relative to the first event."""

    events: int
    interval_ms: int
    request_id: str | None
    new_connection: bool
    complete: bool
    sent_ms: tuple[float, ...]
    arrived_ms: tuple[float, ...]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The report on one audit."""

    url: str
    address: str
    dns_ms: float | None
    connect_ms: float
    tls_handshake_ms: float | None
    tls_version: str | None
    proxy: tuple[str, ...]
    """Signs of a proxy."""
    findings: int
    checks: tuple[Verdict, ...]
    streams: tuple[StreamSummary, ...]

    @property
    def exit_status(self) -> int:
        """0 without a finding, 1 with one, 2 if it could not be judged whether events are held back."""
        if self.findings:
            return 1
        judged = any(check.check == DELIVERY and check.outcome is Outcome.CLEAR for check in self.checks)
        return 0 if judged else 2


def report_of(measured: Measured) -> Report:
    """Judge the measurements."""
    checks, connection, tls = judge(measured), measured.connection, measured.connection.tls
    streams = (*measured.streams, *([measured.idle] if measured.idle is not None else []))
    return Report(
        url=measured.url,
        address=connection.address,
        dns_ms=connection.dns_ms,
        connect_ms=connection.connect_ms,
        tls_handshake_ms=None if tls is None else tls.handshake_ms,
        tls_version=None if tls is None else tls.version,
        proxy=proxy_signs(measured),
        findings=sum(check.outcome is Outcome.FINDING for check in checks),
        checks=checks,
        streams=tuple(_summary(stream) for stream in streams),
    )


def text_of(report: Report) -> str:
    """The report as text: findings first, each with its fix."""
    return "\n".join(_lines(report))


def _lines(report: Report) -> Iterator[str]:
    yield f"{report.url} at {report.address}: {report.findings or 'no'} finding{'' if report.findings == 1 else 's'}"
    yield f"between: {'; '.join(report.proxy) or 'no sign of a proxy'}"
    yield ""
    order = (Outcome.FINDING, Outcome.CLEAR, Outcome.NOT_ENOUGH_EVIDENCE)
    for check in sorted(report.checks, key=lambda check: order.index(check.outcome)):
        named = check.check if check.code == check.check else f"{check.check}: {check.code}"
        yield from wrapped(f"{MARKS[check.outcome]:<6} {named}  ", check.evidence)
        if check.fix:
            yield from wrapped("       fix: ", check.fix)
            yield ""


def _summary(stream: Stream) -> StreamSummary:
    received = stream.received
    return StreamSummary(
        events=stream.events,
        interval_ms=stream.interval_ms,
        request_id=stream.opening.request_id if stream.opening is not None else None,
        new_connection=stream.new_connection,
        complete=stream.complete,
        sent_ms=tuple(round((event.sent_us - received[0].sent_us) / 1e3, 3) for event in received),
        arrived_ms=tuple(round((event.arrived_s - received[0].arrived_s) * 1e3, 3) for event in received),
    )
