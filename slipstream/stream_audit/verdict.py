"""A rule's verdict on the measurements."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Outcome(StrEnum):
    """The result of a check."""

    FINDING = "finding"
    CLEAR = "clear"
    NOT_ENOUGH_EVIDENCE = "not_enough_evidence"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One check. code: a stable name of the finding, or the check's own name."""

    check: str
    outcome: Outcome
    code: str
    evidence: str
    """A sentence with the numbers behind it, or the reason why there are not enough."""
    fix: str = ""
    """The change that helps; only for findings."""


def finding(check: str, code: str, evidence: str, fix: str) -> Verdict:
    """The verdict of a check that found a fault."""
    return Verdict(check=check, outcome=Outcome.FINDING, code=code, evidence=evidence, fix=fix)


def clear(check: str, evidence: str) -> Verdict:
    """The verdict of a check that found no fault."""
    return Verdict(check=check, outcome=Outcome.CLEAR, code=check, evidence=evidence)


def not_enough(check: str, why: str) -> Verdict:
    """The verdict of a check without enough evidence."""
    return Verdict(check=check, outcome=Outcome.NOT_ENOUGH_EVIDENCE, code=check, evidence=why)
