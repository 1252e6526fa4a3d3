"""The evidence of a release's judge over time, by test, for a chart."""

from __future__ import annotations

import math
from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec
from sqlalchemy import func, or_, select

from control.api.call import AdminCall, not_found
from control.releases.machine import Event
from control.releases.tables import release_steps, releases
from storage.rows import fetch

MAX_LOOKS = 120
"""More looks are thinned out evenly; moves and the last verdict always stay."""


class TestKind(StrEnum):
    """harm: the candidate is worse than tolerated. proof: the candidate is not worse by the margin."""

    HARM = "harm"
    PROOF = "proof"


class EvidenceLook(msgspec.Struct, frozen=True, kw_only=True):
    """A step with a verdict. candidate_units, control_units: sessions of the stage so far."""

    step: int
    at: datetime
    event: Event
    stage: int
    candidate_units: int
    control_units: int


class EvidenceTest(msgspec.Struct, frozen=True, kw_only=True):
    """One test at each look; null before the test began. candidate, control: sessions (or votes) that count against
    each. log10_e: the decimal logarithm of the e-value; 0 or less without evidence. needed_log10: the value at which
    the test decides; null for never."""

    kind: TestKind
    metric: str
    test: str
    needed_log10: float | None
    candidate: list[int | None]
    control: list[int | None]
    log10_e: list[float | None]


class ReleaseEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """looks: at most 120 looks and the moves, in order. tests: each aligned with the looks. looks_in_all: the number of
    looks before some were left out."""

    looks: list[EvidenceLook]
    looks_in_all: int
    tests: list[EvidenceTest]


class _Test(msgspec.Struct):
    metric: str
    test: str
    candidate: int
    control: int
    alpha: float
    log10_e: float


class _Verdict(msgspec.Struct):
    candidate_units: int = 0
    control_units: int = 0
    harms: tuple[_Test, ...] = ()
    proofs: tuple[_Test, ...] = ()


async def get_release_evidence(call: AdminCall, release_id: UUID) -> ReleaseEvidence:
    """Get the evidence of each of a release's tests at each look.

    An e-value is evidence that is valid at any time. A test decides once it reaches 1/alpha.
    """
    if await call.value(select(releases.c.id).where(releases.c.id == release_id)) is None:
        raise not_found("release", release_id)
    steps = release_steps.c
    place = func.row_number().over(order_by=steps.step.desc()).label("place")
    in_all = func.count().over().label("looks")
    numbered = (
        select(steps.step, steps.at, steps.event, steps.stage, steps.verdict, place, in_all)
        .where(steps.release_id == release_id, steps.verdict.is_not(None))
        .subquery()
    )
    interval = (numbered.c.looks - 1) // MAX_LOOKS + 1
    kept = or_((numbered.c.place - 1) % interval == 0, numbered.c.event != Event.OBSERVE.value)
    rows = await fetch(call.connection, select(numbered).where(kept).order_by(numbered.c.step))
    looks, tests = [], dict[tuple[TestKind, str, str], EvidenceTest]()
    for at, row in enumerate(rows):
        verdict = msgspec.json.decode(row["verdict"], type=_Verdict)
        looks.append(
            EvidenceLook(
                step=row["step"],
                at=row["at"],
                event=Event(row["event"]),
                stage=row["stage"],
                candidate_units=verdict.candidate_units,
                control_units=verdict.control_units,
            )
        )
        for kind, found in ((TestKind.HARM, verdict.harms), (TestKind.PROOF, verdict.proofs)):
            for one in found:
                test = tests.setdefault((kind, one.metric, one.test), _before_the_first(kind, one, len(rows)))
                test.candidate[at], test.control[at], test.log10_e[at] = one.candidate, one.control, one.log10_e
    return ReleaseEvidence(looks=looks, looks_in_all=rows[0]["looks"] if rows else 0, tests=list(tests.values()))


def _before_the_first(kind: TestKind, one: _Test, looks: int) -> EvidenceTest:
    return EvidenceTest(
        kind=kind,
        metric=one.metric,
        test=one.test,
        needed_log10=-math.log10(one.alpha) if one.alpha > 0 else None,
        candidate=[None] * looks,
        control=[None] * looks,
        log10_e=[None] * looks,
    )
