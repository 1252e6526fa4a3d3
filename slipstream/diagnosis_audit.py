"""What an audit of a stream found, as evidence of a diagnosis."""

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
"""Checks of what delays events; the others' findings cost a connection's beginning, or a header."""


async def audited(url: str, key: str, ca_file: str | None = None) -> Audit:
    """What lies between this machine and the gateway, or why that could not be measured."""
    try:
        return audit_of(await measure(url, key, Plan(), ca_file))
    except NotMeasured as error:
        return Audit(unjudged=f"the path was not measured: {error}")


def audit_of(measured: Measured) -> Audit:
    """All that was found, and why whether events are held back could not be judged, where it could not."""
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
