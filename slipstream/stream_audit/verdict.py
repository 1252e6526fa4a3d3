"""What a rule says of what was measured."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Outcome(StrEnum):
    """How a check came out."""

    FINDING = "finding"
    CLEAR = "clear"
    NOT_ENOUGH_EVIDENCE = "not_enough_evidence"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """One check. code: what was found, or the check's own name; stable."""

    check: str
    outcome: Outcome
    code: str
    evidence: str
    """A sentence with the numbers it rests on; why there are not enough, where so."""
    fix: str = ""
    """What to change; of findings only."""


def finding(check: str, code: str, evidence: str, fix: str) -> Verdict:
    """Something is in the way."""
    return Verdict(check=check, outcome=Outcome.FINDING, code=code, evidence=evidence, fix=fix)


def clear(check: str, evidence: str) -> Verdict:
    """Looked for, and not there."""
    return Verdict(check=check, outcome=Outcome.CLEAR, code=check, evidence=evidence)


def not_enough(check: str, why: str) -> Verdict:
    """Nothing can be said."""
    return Verdict(check=check, outcome=Outcome.NOT_ENOUGH_EVIDENCE, code=check, evidence=why)
