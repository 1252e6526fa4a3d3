"""Diagnoses slow requests: reads the evidence, lets `findings` judge it, and reports causes with their fixes.

A tenant's diagnosis uses only its own requests, and covers causes that it can fix: its limits, prompts, schemas and
clients. For the network path, it names the command that measures it. An operator's diagnosis covers all causes.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from msgspec import Struct

from contracts.errors import InvalidField
from contracts.generation import Tier
from contracts.length_class import LengthClass
from control.api.call import AdminCall
from control.api.moments import moment
from control.api.schemas import LedgerMoment, Query
from control.diagnosis.burning import read_burning
from control.diagnosis.findings.comparison import groups, not_judged
from control.diagnosis.findings.evidence import Audit, Burning, Evidence, Slice
from control.diagnosis.findings.finding import Cause, Finding, Phase
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.measure import Measure
from control.diagnosis.findings.objectives import Objectives
from control.diagnosis.findings.thresholds import THRESHOLDS
from control.diagnosis.findings.tree import RULES, TENANTS, Diagnosis, Outcome, diagnose
from control.diagnosis.window import read_window
from control.slo.adoption import in_force
from control.slo.standing import LAST_RUN

HOUR = timedelta(hours=1)
LAST = HOUR
MAX = timedelta(days=7)
MIN = timedelta(seconds=1)
TENANTS_FIXES = frozenset(
    {
        Fix.PACE_REQUESTS,
        Fix.RAISE_LIMIT,
        Fix.STABLE_PREFIX,
        Fix.PROMPT_BUDGET,
        Fix.READ_FASTER,
        Fix.REPAIR_PATH,
        Fix.SAME_SCHEMA,
    }
)


class Change(Struct, frozen=True, kw_only=True):
    """A change to make. told: the change as a sentence."""

    fix: Fix
    told: str


class UselessChange(Struct, frozen=True, kw_only=True):
    """A usual change that would not help here."""

    fix: Fix
    why: str


class FoundCause(Struct, frozen=True, kw_only=True):
    """A cause of slow or failed requests. evidence: sentences with the numbers that support it. fixes: the best fix
    first."""

    cause: Cause
    phase: Phase
    new: bool
    """Whether the previous window did not have it."""
    score: float
    """Its cost as a part of the objective; 0 if the cause does not concern time."""
    evidence: list[str]
    fixes: list[Change]
    would_not_help: list[UselessChange]


class ClearCause(Struct, frozen=True, kw_only=True):
    """A checked cause below its threshold. threshold: the value from which it is reported."""

    cause: Cause
    threshold: str


class BurntRequests(Struct, frozen=True, kw_only=True):
    """Bad requests of one organization and model that went to one pool and broke the objective in the same way.

    pool: null if the request was not placed on an engine, or if the reader is not an operator. what: the error code, or
    `late_first_token`, `slow_tokens` or `long_gap`.
    """

    organization: str
    model: str
    pool: str | None
    what: str
    requests: int


class BurningObjective(Struct, frozen=True, kw_only=True):
    """An objective whose alert is firing, because its error budget is burning too fast over two windows.

    long, short: the two windows. threshold: the burn rate that both exceed. counted, bad: requests of the long window.
    looked_at: the newest bad requests, which `burnt` counts. burnt: the largest group first. told: the alert as a
    sentence.
    """

    tier: Tier
    length: LengthClass
    long: str
    short: str
    threshold: float
    counted: int
    bad: int
    looked_at: int
    burnt: list[BurntRequests]
    told: str


class UnknownCause(Struct, frozen=True, kw_only=True):
    """A cause that could not be judged."""

    cause: Cause
    why: str


class TwoNumbers(Struct, frozen=True, kw_only=True):
    """Two numbers that must not be merged into one, in milliseconds, of a tier and a length class (null for all
    lengths)."""

    tier: Tier | None
    length: LengthClass | None
    requests: int
    ttft_p50_ms: float | None
    ttft_p95_ms: float | None
    ttft_p99_ms: float | None
    ttft_objective_ms: float
    tpot_p50_ms: float | None
    tpot_p95_ms: float | None
    tpot_p99_ms: float | None
    tpot_objective_ms: float | None
    """Null without an objective."""


class DiagnosisOf(Struct, frozen=True, kw_only=True):
    """The first cause to fix, further causes, and causes that need no action. second: independent causes, to be checked
    again once the first is fixed. explained: consequences of the first cause. questions: missing measurements that
    would help. burning: alerts that are firing, the fastest burn first, with the requests that burnt the budget.

    Without a cause, the outcome is `burning` if an alert is firing, otherwise `nothing_found`, or `not_enough_evidence`
    if too little was measured.
    """

    outcome: Outcome
    start: datetime
    end: datetime
    before_start: datetime
    before_end: datetime
    requests: int
    requests_before: int
    sampled_share: float | None
    """The randomly drawn share of the answered requests whose times were read; null for all. Counts always cover all
    requests."""
    burning: list[BurningObjective]
    primary: FoundCause | None
    second: list[FoundCause]
    explained: list[FoundCause]
    clear: list[ClearCause]
    unknown: list[UnknownCause]
    questions: list[str]
    not_judged: list[str]
    """Classes with too few requests for a judgment."""
    numbers: list[TwoNumbers]


class DiagnosisQuery(Query, frozen=True, kw_only=True):
    """The window to judge (by default the last hour, at most seven days), and a healthy window for comparison (by
    default as long, directly before it)."""

    start: LedgerMoment | None = None
    end: LedgerMoment | None = None
    before_start: LedgerMoment | None = None
    before_end: LedgerMoment | None = None
    tier: Tier | None = None

    def windows(self) -> tuple[tuple[datetime, datetime], tuple[datetime, datetime]]:
        """The earlier and the judged window, in UTC. Raises InvalidField."""
        end = datetime.now(UTC) if self.end is None else moment(self.end, "end")
        start = end - LAST if self.start is None else moment(self.start, "start")
        _require_span(start, end, "start", "end")
        before_end = start if self.before_end is None else moment(self.before_end, "before_end")
        if before_end > start:
            raise InvalidField("Invalid value for 'before_end': it is after 'start'.", param="before_end")
        before_start = (
            before_end - (end - start) if self.before_start is None else moment(self.before_start, "before_start")
        )
        _require_span(before_start, before_end, "before_start", "before_end")
        return (before_start, before_end), (start, end)


async def get_diagnosis(call: AdminCall, organization_id: UUID, query: DiagnosisQuery) -> DiagnosisOf:
    """Diagnose an organization's slow requests and propose changes, or report that too little was measured.

    Members of the organization see the causes that they can fix themselves: limits, prompts, schemas and clients.
    Clients measure their own network path with `slipstream tools audit-stream`.
    """
    await call.require_organization(organization_id)
    return await diagnosed(call, query, organization_id)


async def get_diagnosis_of_all(call: AdminCall, query: DiagnosisQuery) -> DiagnosisOf:
    """Diagnose the deployment's slow requests and propose changes, or report that too little was measured."""
    return await diagnosed(call, query, None)


async def diagnosed(
    call: AdminCall, query: DiagnosisQuery, organization_id: UUID | None, audit: Audit | None = None
) -> DiagnosisOf:
    """Diagnose the requests of one organization, or of all if organization_id is None. audit: of the path between a
    client and the gateway; None without one."""
    (before_start, before_end), (start, end) = query.windows()
    objectives, totals_until = await _promised(call), await call.value(LAST_RUN)
    call.to_narrow = _to_narrow("start", "end", end - start, totals_until)
    now = await read_window(call.connection, start, end, organization_id, query.tier, objectives)
    call.to_narrow = _to_narrow("before_start", "before_end", before_end - before_start, totals_until)
    before = await read_window(call.connection, before_start, before_end, organization_id, query.tier, objectives)
    is_tenant = call.scope is not None
    burning = await read_burning(call.connection, organization_id, query.tier, end, show_pools=not is_tenant)
    evidence = Evidence(now=now, before=before, burning=burning, audit=audit)
    found = diagnose(evidence, objectives, TENANTS if is_tenant else tuple(RULES))
    return _told(found, evidence, objectives, TENANTS_FIXES if is_tenant else frozenset(Fix))


def _to_narrow(start_name: str, end_name: str, span: timedelta, totals_until: datetime | None) -> str:
    """Advice for a window that takes too long to read. totals_until: end of the hours for which totals exist."""
    known = (
        f"hours before {totals_until.astimezone(UTC):%Y-%m-%dT%H:00:00Z} have totals, which are read quickly"
        if totals_until is not None
        else "no worker has totals of any hour yet; whole hours are read quickly once one has"
    )
    return (
        f"choose a shorter window with '{start_name}' and '{end_name}', which are {span / HOUR:.3g} hours apart, or "
        f"one tier or organization: {known}"
    )


async def _promised(call: AdminCall) -> Objectives:
    """The objectives in force; a class without one is judged by the default."""
    _, promised = await in_force(call.connection)
    return Objectives(promised)


def _told(found: Diagnosis, evidence: Evidence, objectives: Objectives, fixes: frozenset[Fix]) -> DiagnosisOf:
    now, before = evidence.now, evidence.before
    assert before is not None
    return DiagnosisOf(
        outcome=found.outcome,
        start=now.began,
        end=now.ended,
        before_start=before.began,
        before_end=before.ended,
        requests=now.requests,
        requests_before=before.requests,
        sampled_share=now.sampled_share,
        burning=[_burning(each) for each in evidence.burning],
        primary=None if found.primary is None else _cause(found.primary, fixes),
        second=[_cause(each, fixes) for each in found.second],
        explained=[_cause(each, fixes) for each in found.explained],
        clear=[ClearCause(cause=each, threshold=THRESHOLDS[each]) for each in found.clear],
        unknown=[UnknownCause(cause=each.cause, why=each.why) for each in found.unknown],
        questions=list(found.questions),
        not_judged=list(not_judged(now)),
        numbers=[_numbers(each, objectives) for each in groups(now)],
    )


def _burning(each: Burning) -> BurningObjective:
    return BurningObjective(
        tier=each.tier,
        length=each.length,
        long=each.long,
        short=each.short,
        threshold=each.threshold,
        counted=each.counted,
        bad=each.bad,
        looked_at=each.looked_at,
        burnt=[
            BurntRequests(
                organization=part.organization,
                model=part.model,
                pool=part.pool or None,
                what=part.what,
                requests=part.requests,
            )
            for part in each.burnt
        ],
        told=each.told,
    )


def _cause(finding: Finding, fixes: frozenset[Fix]) -> FoundCause:
    """fixes: changes that the caller can make."""
    return FoundCause(
        cause=finding.cause,
        phase=finding.phase,
        new=finding.new,
        score=round(finding.score, 3),
        evidence=list(finding.evidence),
        fixes=[Change(fix=fix, told=fix.told) for fix in finding.fixes if fix in fixes],
        would_not_help=[UselessChange(fix=each.fix, why=each.why) for each in finding.would_not_help],
    )


def _numbers(one: Slice, objectives: Objectives) -> TwoNumbers:
    objective = objectives.of(one.tier, one.length)
    ttft, tpot = one.measures.get(Measure.TTFT), one.measures.get(Measure.TPOT)
    return TwoNumbers(
        tier=one.tier,
        length=one.length,
        requests=one.requests,
        ttft_p50_ms=None if ttft is None else ttft.p50,
        ttft_p95_ms=None if ttft is None else ttft.p95,
        ttft_p99_ms=None if ttft is None else ttft.p99,
        ttft_objective_ms=objective.ttft_ms,
        tpot_p50_ms=None if tpot is None else tpot.p50,
        tpot_p95_ms=None if tpot is None else tpot.p95,
        tpot_p99_ms=None if tpot is None else tpot.p99,
        tpot_objective_ms=objective.tpot_ms,
    )


def _require_span(start: datetime, end: datetime, start_name: str, end_name: str) -> None:
    if end - start < MIN:
        raise InvalidField(f"Invalid value for '{end_name}': it is not after '{start_name}'.", param=end_name)
    if end - start > MAX:
        raise InvalidField(f"Invalid value for '{start_name}': a diagnosis covers at most 7 days.", param=start_name)
