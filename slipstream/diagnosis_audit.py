"""What an audit of a stream found, as evidence of a diagnosis."""

from __future__ import annotations

from diagnosis.evidence import AuditFinding
from slipstream.stream_audit.measured import Measured
from slipstream.stream_audit.report import report_of
from slipstream.stream_audit.rules import delivery, first_event
from slipstream.stream_audit.timing import timing_of
from slipstream.stream_audit.verdict import Outcome

HOLDING = (delivery.CHECK, first_event.CHECK)
"""Checks of what delays events; the others' findings cost a connection's beginning, or a header."""


def findings_of(measured: Measured) -> tuple[AuditFinding, ...] | None:
    """None where whether events are held back could not be judged."""
    report = report_of(measured)
    checks = {check.check: check for check in report.checks}
    if checks[delivery.CHECK].outcome is Outcome.NOT_ENOUGH_EVIDENCE:
        return None
    delay_ms = 0.0 if measured.slow is None else timing_of(measured.slow).delay_ms(0.5)
    return tuple(
        AuditFinding(check.code, check.evidence, check.fix, check.check in HOLDING, delay_ms)
        for check in report.checks
        if check.outcome is Outcome.FINDING
    )
