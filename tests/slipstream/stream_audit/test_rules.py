"""Every rule: what it finds, with which numbers, and when it says that there are not enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from slipstream.stream_audit.measured import Connection, Measured, Stream, Tls
from slipstream.stream_audit.report import report_of, text_of
from slipstream.stream_audit.rules import RULES
from slipstream.stream_audit.verdict import Outcome, Verdict
from tests.slipstream.stream_audit.networks import SENT_HEADERS, direct, measured, opening, stream, whole

replace = msgspec.structs.replace
TLS = Tls(
    version="TLSv1.3",
    cipher="TLS_AES_256_GCM_SHA384",
    http2=True,
    handshake_ms=3.0,
    issuer="CN=R3",
    expires_at="2026-12-31T00:00:00Z",
    valid_days=60.0,
)


def connected(**more: Any) -> Measured:
    """more: fields of TLS, or of the connection."""
    tls = replace(TLS, **{name: value for name, value in more.items() if name in TLS.__struct_fields__})
    others = {name: value for name, value in more.items() if name not in TLS.__struct_fields__}
    usual = {"address": "192.0.2.1", "dns_ms": 2.0, "connect_ms": 1.0}
    return measured(connection=Connection(**{**usual, **others}, tls=tls))


def each(audit: Measured, change: Callable[[int, Stream], Stream]) -> Measured:
    """The same change in every stream."""
    assert audit.slow is not None
    assert audit.fast is not None
    short = tuple(change(number, stream) for number, stream in enumerate(audit.short))
    return replace(audit, short=short, slow=change(4, audit.slow), fast=change(5, audit.fast))


def told(**more: Any) -> Measured:
    """What the gateway says of each request, more: fields of the opening, or functions of the request's number."""

    def change(number: int, stream: Stream) -> Stream:
        fields = {name: value(number) if callable(value) else value for name, value in more.items()}
        return replace(stream, opening=opening(**fields))

    return each(measured(), change)


def answered(**headers: str) -> Measured:
    """What arrived of the answers' heads."""
    whole_head = {**SENT_HEADERS, **{name.replace("_", "-"): value for name, value in headers.items()}}
    kept = {name: value for name, value in whole_head.items() if value}
    return each(measured(), lambda _, stream: replace(stream, headers=kept))


def silent(**more: Any) -> Measured:
    return measured(idle=stream(direct, 2, 60_000, 1, **more))


VIA = ("x-forwarded-for",)
FINDINGS: dict[str, tuple[Measured, str]] = {
    # code: where it is found, and what its evidence has
    "dns_slow": (connected(dns_ms=250.0), "250 ms"),
    "far_away": (connected(connect_ms=180.0), "180 ms"),
    "tls_old": (connected(version="TLSv1.2"), "TLSv1.2"),
    "certificate_expires": (connected(valid_days=3.2), "3.2 days"),
    "certificate_untrusted": (connected(untrusted="self-signed certificate"), "self-signed certificate"),
    "connection_not_reused": (
        each(answered(connection="close"), lambda _, one: replace(one, new_connection=True)),
        "5 of 5 requests after the first needed a new connection, which costs 0.5 ms of each one's first token; "
        "6 of 6 answers said",
    ),
    "http_1_0_upstream": (told(http_version="1.0"), "6 of 6 requests reached the gateway in HTTP/1.0"),
    "http_1_0_answer": (
        each(measured(), lambda _, one: replace(one, http_version="1.0")), "6 of 6 answers came in HTTP/1.0",
    ),
    "upstream_not_reused": (
        told(request_number=1, request_headers=VIA, closes=True),
        "5 of 5 requests reached the gateway on a connection that was new to it; 6 asked it to close",
    ),
    "slow_hop": (each(measured(), lambda _, one: replace(one, asked_s=one.received[0].arrived_s - 0.4)), "400.0 ms"),
    "buffered": (measured(whole), "24 events 80 ms apart 23 of 23 arrived joined, typically 24 at once, 4,992 bytes"),
    "compressed": (answered(content_encoding="gzip"), "6 of 6 streams came as content-encoding: gzip"),
    "headers_lost": (answered(server_timing="", x_request_id="other"), "Lost: server-timing; Changed: x-request-id."),
    "headers_changed": (answered(x_request_id="other"), "Changed: x-request-id."),
    "request_id_lost": (told(client_request_id=None), "'audit-1' was sent, and nothing arrived with 6 of 6 requests"),
    "cut_when_silent": (
        silent(complete=False, received=measured().short[0].received, failure="ClientPayloadError: cut"),
        "(ClientPayloadError: cut)",
    ),
}  # fmt: skip


def verdicts(audit: Measured) -> dict[str, Verdict]:
    return {verdict.check: verdict for verdict in report_of(audit).checks}


def findings(audit: Measured) -> dict[str, Verdict]:
    return {verdict.code: verdict for verdict in verdicts(audit).values() if verdict.outcome is Outcome.FINDING}


@pytest.mark.parametrize("code", FINDINGS)
def test_each_cause_is_found_alone_with_its_numbers_and_its_fix(code: str) -> None:
    audit, evidence = FINDINGS[code]
    found = findings(audit)
    assert set(found) == {code}
    assert evidence in found[code].evidence
    assert found[code].fix
    report = report_of(audit)
    assert (report.findings, report.exit_status) == (1, 1)
    first = text_of(report).splitlines()
    assert first[0].endswith(": 1 finding")
    assert f"{found[code].check}: {code}" in first[3]


def test_nothing_in_the_way_is_no_finding() -> None:
    for audit in (
        measured(),
        connected(),
        told(request_number=lambda number: number + 1, request_headers=VIA),
        silent(),
    ):
        assert findings(audit) == {}
        assert report_of(audit).exit_status == 0


def test_every_rule_says_when_there_is_not_enough() -> None:
    nothing = Measured(url="", client_request_id="", connection=measured().connection)
    without = {check for check, verdict in verdicts(nothing).items() if verdict.outcome is not Outcome.CLEAR}
    assert without == {rule.__module__.rpartition(".")[2] for rule in RULES} - {
        "distance", "name_lookup", "tls_version", "client_reuse", "idle_cut", "upstream_reuse",
    } | {"tls", "connection_reuse", "silence"}  # fmt: skip
    assert all(verdict.outcome is not Outcome.FINDING for verdict in verdicts(nothing).values())
    assert report_of(nothing).exit_status == 2


@pytest.mark.parametrize(
    ("check", "audit", "why"),
    [
        ("delivery", measured(slow=stream(direct, 24, 80, 1, complete=False, failure="reset")), "broke off: 24 of 24"),
        ("delivery", measured(slow=stream(direct, 6, 80, 1)), "of 5 events only 5 arrived"),
        ("dns", connected(dns_ms=None), "no name was looked up"),
        ("silence", measured(), "--idle-s 15"),
        ("silence", silent(received=(), complete=False, failure="504"), "did not begin (504)"),
        ("upstream_reuse", told(instance=str, request_headers=VIA), "6 gateways answered"),
    ],
)
def test_what_cannot_be_said_is_not_said(check: str, audit: Measured, why: str) -> None:
    verdict = verdicts(audit)[check]
    assert verdict.outcome is Outcome.NOT_ENOUGH_EVIDENCE
    assert why in verdict.evidence


def test_a_connection_that_a_proxy_opens_now_and_then_is_no_finding() -> None:
    audit = told(request_number=lambda number: 1 + number % 3, request_headers=VIA)
    assert verdicts(audit)["upstream_reuse"].outcome is Outcome.CLEAR
