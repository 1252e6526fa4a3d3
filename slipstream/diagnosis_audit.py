"""The findings of a stream audit, as evidence for a diagnosis."""

from __future__ import annotations

from control.diagnosis.findings.evidence import Audit, AuditFinding
from slipstream.stream_audit.measure import Plan, measure
from slipstream.stream_audit.measured import Measured
from slipstream.stream_audit.not_measured import NotMeasured
from slipstream.stream_audit.report import report_of
from slipstream.stream_audit.rules import certificate, delivery, first_event
from slipstream.stream_audit.timing import timing_of
from slipstream.stream_audit.verdict import Outcome

HOLDING = (delivery.CHECK, first_event.CHECK)
"""Checks for delayed events; findings of the other checks cost only a connection's start, or a header."""


async def audited(url: str, key: str, ca_file: str | None = None) -> Audit:
    """Audit the path from this machine to the gateway; on failure, the reason why it could not be measured."""
    try:
        return audit_of(await measure(url, key, Plan(), ca_file))
    except NotMeasured as error:
        return Audit(unjudged=f"the path was not measured: {error}")


def audit_of(measured: Measured) -> Audit:
    """All findings, and the reason if it could not be judged whether events are held back."""
    report = report_of(measured)
    checks = {check.check: check for check in report.checks}
    judged = checks[delivery.CHECK]
    unjudged = judged.evidence if judged.outcome is Outcome.NOT_ENOUGH_EVIDENCE else ""
    delay_ms = 0.0 if measured.slow is None or unjudged else timing_of(measured.slow).delay_ms(0.5)
    return Audit(
        findings=tuple(
            AuditFinding(
                check.code,
                check.evidence,
                check.fix,
                check.check in HOLDING,
                delay_ms,
                keeps_out=check.code == certificate.UNTRUSTED,
            )
            for check in report.checks
            if check.outcome is Outcome.FINDING
        ),
        unjudged=unjudged,
    )
