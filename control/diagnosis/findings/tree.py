"""The order of the rules, and the choice of the finding to act on.

    0  failures of the platform       a request that fails is worse than a slow one, and no engine can fix it
    1  retractions, engine failures   all other numbers then include requests that were computed twice
    2  limits                         a refused request has no latency at all
    3  changes of the work            one slow replica, a broken prefix, cold or lost caches, longer prompts
    4  the phases                     new findings first, then the one that spends most of its objective; the network
                                      and clients that do not read are phases, too

A finding of 3 that explains phases of 4 is the cause. A phase that it does not explain and that costs clearly more
comes first. TTFT and time per token are two numbers, never one: each is judged against its own objective, and a finding
about one does not hide the other, which is reported as second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

import msgspec

from control.diagnosis.findings.comparison import MIN
from control.diagnosis.findings.evidence import Evidence
from control.diagnosis.findings.finding import Cause, Clear, Finding, NotEnough, Phase, Verdict
from control.diagnosis.findings.objectives import Objectives
from control.diagnosis.findings.rules import (
    broken_prefix,
    choppy_decode,
    cold_cache,
    engine_failures,
    engine_link,
    grammar,
    limits,
    long_prompts,
    lost_cache,
    network,
    platform_failures,
    queue,
    queue_or_prefill,
    retractions,
    slow_arrival,
    slow_client,
    slow_decode,
    slow_finish,
    slow_first_token,
    slow_limiter,
    slow_prefill,
    slow_replica,
    slow_router,
)

Rule = Callable[[Evidence, Objectives], Verdict]
Explains = Mapping[Cause, frozenset[Cause]]

RULES: dict[Cause, Rule] = {
    Cause.PLATFORM_FAILURES: platform_failures.judge,
    Cause.RETRACTIONS: retractions.judge,
    Cause.ENGINE_FAILURES: engine_failures.judge,
    Cause.LIMITS: limits.judge,
    Cause.SLOW_REPLICA: slow_replica.judge,
    Cause.BROKEN_PREFIX: broken_prefix.judge,
    Cause.COLD_CACHE: cold_cache.judge,
    Cause.LOST_CACHE: lost_cache.judge,
    Cause.LONG_PROMPTS: long_prompts.judge,
    Cause.SLOW_ARRIVAL: slow_arrival.judge,
    Cause.SLOW_LIMITER: slow_limiter.judge,
    Cause.SLOW_ROUTER: slow_router.judge,
    Cause.QUEUE: queue.judge,
    Cause.SLOW_PREFILL: slow_prefill.judge,
    Cause.QUEUE_OR_PREFILL: queue_or_prefill.judge,
    Cause.GRAMMAR: grammar.judge,
    Cause.ENGINE_LINK: engine_link.judge,
    Cause.SLOW_FIRST_TOKEN: slow_first_token.judge,
    Cause.SLOW_DECODE: slow_decode.judge,
    Cause.CHOPPY_DECODE: choppy_decode.judge,
    Cause.SLOW_FINISH: slow_finish.judge,
    Cause.NETWORK: network.judge,
    Cause.SLOW_CLIENT: slow_client.judge,
}
FIRST = (Cause.PLATFORM_FAILURES, Cause.RETRACTIONS, Cause.ENGINE_FAILURES, Cause.LIMITS)
"""These come first, whatever else is found."""
TENANTS = (Cause.LIMITS, Cause.BROKEN_PREFIX, Cause.LONG_PROMPTS, Cause.GRAMMAR, Cause.NETWORK, Cause.SLOW_CLIENT)
"""Causes that a tenant can fix and that its own requests show. The others are the operator's."""
_ENGINE_PHASES = frozenset(
    {
        Cause.QUEUE,
        Cause.SLOW_PREFILL,
        Cause.QUEUE_OR_PREFILL,
        Cause.ENGINE_LINK,
        Cause.SLOW_FIRST_TOKEN,
        Cause.CHOPPY_DECODE,
    }
)
EXPLAINS: Explains = {
    # a part that fails some requests delays others
    Cause.PLATFORM_FAILURES: frozenset({Cause.SLOW_ARRIVAL, Cause.SLOW_LIMITER, Cause.SLOW_ROUTER, Cause.SLOW_FINISH}),
    Cause.RETRACTIONS: _ENGINE_PHASES | {Cause.SLOW_DECODE, Cause.SLOW_REPLICA, Cause.COLD_CACHE, Cause.LOST_CACHE},
    Cause.ENGINE_FAILURES: _ENGINE_PHASES
    | {Cause.SLOW_DECODE, Cause.SLOW_ROUTER, Cause.COLD_CACHE, Cause.LOST_CACHE, Cause.SLOW_REPLICA},
    Cause.SLOW_REPLICA: _ENGINE_PHASES | {Cause.SLOW_DECODE},
    Cause.BROKEN_PREFIX: _ENGINE_PHASES | {Cause.SLOW_DECODE},
    Cause.COLD_CACHE: _ENGINE_PHASES | {Cause.SLOW_DECODE},
    Cause.LOST_CACHE: _ENGINE_PHASES | {Cause.SLOW_DECODE},
    Cause.LONG_PROMPTS: _ENGINE_PHASES | {Cause.SLOW_DECODE},
    # a settlement is the same round trip
    Cause.SLOW_LIMITER: frozenset({Cause.SLOW_FINISH}),
    Cause.SLOW_DECODE: frozenset(),
    # gaps are other requests' prefills
    Cause.SLOW_PREFILL: frozenset({Cause.CHOPPY_DECODE}),
}
"""Further symptoms of a cause, under any load."""
OUTWEIGHS = 0.1
"""The additional cost, in parts of the objective, that puts a phase before a cause that does not explain it."""
MORE_LOAD = 1.3
"""The ratio of request rates, compared with the earlier window, from which the load has grown."""
STRUCTURAL = (
    Cause.SLOW_REPLICA,
    Cause.BROKEN_PREFIX,
    Cause.COLD_CACHE,
    Cause.LOST_CACHE,
    Cause.LONG_PROMPTS,
)
"""Changes of the work or of one part, of which slow phases are only symptoms."""
NEEDED = (Cause.SLOW_DECODE, Cause.QUEUE)
"""Without a verdict on each of these, a diagnosis without findings proves nothing."""
BOTH_QUESTION = (
    "Do engines run out of memory, or restart requests? Both numbers are bad, and no engine reports it: read their "
    "logs before anything else."
)


class Outcome(StrEnum):
    """Outcome of a diagnosis."""

    FOUND = "found"
    BURNING = "burning"
    """An alert of an objective fires, and no cause is above its threshold."""
    NOTHING_FOUND = "nothing_found"
    NOT_ENOUGH_EVIDENCE = "not_enough_evidence"


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The first cause to fix, further ones, and those without need for action."""

    outcome: Outcome
    primary: Finding | None = None
    second: tuple[Finding, ...] = ()
    """Independent problems, to be checked again once the first is fixed."""
    explained: tuple[Finding, ...] = ()
    """Consequences of the first."""
    clear: tuple[Cause, ...] = ()
    unknown: tuple[NotEnough, ...] = ()
    questions: tuple[str, ...] = ()
    """Missing measurements that would help."""


def diagnose(
    evidence: Evidence, objectives: Objectives | None = None, causes: tuple[Cause, ...] = tuple(RULES)
) -> Diagnosis:
    """Apply the rules of these causes in order, and choose the finding to act on."""
    verdicts = [RULES[cause](evidence, objectives or Objectives()) for cause in causes]
    findings = [each for each in verdicts if isinstance(each, Finding)]
    clear = tuple(each.cause for each in verdicts if isinstance(each, Clear))
    unknown = tuple(each for each in verdicts if isinstance(each, NotEnough))
    if not findings:
        blind = evidence.now.requests < MIN or any(each.cause in NEEDED for each in unknown)
        if evidence.burning:
            outcome = Outcome.BURNING
        else:
            outcome = Outcome.NOT_ENOUGH_EVIDENCE if blind else Outcome.NOTHING_FOUND
        return Diagnosis(outcome=outcome, clear=clear, unknown=unknown)
    explains = explanations(evidence, findings)
    primary = first_of(findings, explains)
    explained = explains.get(primary.cause, frozenset())
    rest = [each for each in _ordered(findings) if each is not primary]
    return Diagnosis(
        outcome=Outcome.FOUND,
        primary=primary,
        second=tuple(each for each in rest if each.cause not in explained),
        explained=tuple(each for each in rest if each.cause in explained),
        clear=clear,
        unknown=unknown,
        questions=(*_of_both(findings, unknown), *primary.questions),
    )


def explanations(evidence: Evidence, findings: Sequence[Finding]) -> Explains:
    """Further symptoms of each cause, under this load and together with the other findings.

    A queue that grows with the load slows all running requests through larger batches. Without more load, engines have
    become slower, and the queue is the consequence. If prefill is slow and tokens come in bursts, they wait for other
    requests' prompts. If a part of the platform was unavailable, all waiting requests reach the engines at once when it
    recovers; earlier engine symptoms are independent. If only one organization's excess is refused, there would be no
    queue without it.
    """
    explains = {**EXPLAINS}
    if limits.floods(evidence.now) and queue.told_shed(evidence) is None:
        explains[Cause.LIMITS] = frozenset({Cause.QUEUE})
    before = evidence.before
    if before is None:
        return explains
    burst = {each.cause for each in findings if each.new} & (_ENGINE_PHASES | {Cause.SLOW_DECODE})
    explains[Cause.PLATFORM_FAILURES] = EXPLAINS[Cause.PLATFORM_FAILURES] | burst
    if any(each.cause is Cause.CHOPPY_DECODE for each in findings):
        explains[Cause.SLOW_PREFILL] = EXPLAINS[Cause.SLOW_PREFILL] | {Cause.SLOW_DECODE}
    slower = frozenset({Cause.SLOW_DECODE, Cause.SLOW_PREFILL, Cause.CHOPPY_DECODE})
    if evidence.now.rate >= MORE_LOAD * before.rate:
        return {**explains, Cause.QUEUE: slower}
    symptom = {Cause.QUEUE}
    return {**explains, **{cause: explains[cause] | symptom for cause in (Cause.SLOW_DECODE, Cause.SLOW_PREFILL)}}


def first_of(findings: list[Finding], explains: Explains) -> Finding:
    """The finding to act on."""
    by_cause = {each.cause: each for each in findings}
    for cause in FIRST:
        if cause in by_cause:
            return by_cause[cause]
    phases = [each for each in _ordered(findings) if each.cause not in STRUCTURAL]
    top = _behind(phases, explains)
    for cause in STRUCTURAL:
        if cause in by_cause and (
            top is None or top.cause in explains[cause] or top.score < by_cause[cause].score + OUTWEIGHS
        ):
            return by_cause[cause]
    return _ordered(findings)[0] if top is None else top


def _behind(phases: list[Finding], explains: Explains) -> Finding | None:
    """The costliest phase, or the finding that explains it."""
    if not phases:
        return None
    top = phases[0]
    for each in phases[1:]:
        if each.new >= top.new and top.cause in explains.get(each.cause, ()):
            return each
    return top


def _ordered(findings: list[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda each: (each.new, each.score), reverse=True)


def _of_both(findings: list[Finding], unknown: tuple[NotEnough, ...]) -> tuple[str, ...]:
    slow_first = any(each.phase in (Phase.QUEUE, Phase.PREFILL, Phase.QUEUE_OR_PREFILL) for each in findings)
    slow_tokens = any(each.phase is Phase.DECODE for each in findings)
    unreported = any(each.cause is Cause.RETRACTIONS for each in unknown)
    return (BOTH_QUESTION,) if slow_first and slow_tokens and unreported else ()
