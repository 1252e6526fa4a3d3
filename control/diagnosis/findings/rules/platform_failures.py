"""Requests end with a platform error: a part of it is unavailable, full or defective. No engine is involved."""

from __future__ import annotations

from collections import Counter

import msgspec

from control.diagnosis.findings.evidence import Evidence
from control.diagnosis.findings.failing import failing_part
from control.diagnosis.findings.finding import Cause, Clear, Finding, Phase, Verdict, WouldNotHelp
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.objectives import Objectives
from control.diagnosis.findings.rules import engine_failures, queue

SHARE, FEWEST = 0.01, 5
"""As many as may miss an objective by default."""


class Part(msgspec.Struct, frozen=True):
    """A part of the platform. name: for a sentence."""

    name: str
    phase: Phase
    fix: Fix


KEYS = Part("PostgreSQL, by which keys are verified", Phase.ARRIVAL, Fix.RESTORE_DATABASE)
PREPARATION = Part("counting prompts, for which a gateway has too little CPU", Phase.ARRIVAL, Fix.MORE_GATEWAYS)
CONNECTIONS = Part("connections, of which a gateway has reached its limit", Phase.ARRIVAL, Fix.MORE_CONNECTIONS)
RESTARTS = Part("a process that was being stopped", Phase.ARRIVAL, Fix.ROLL_GATEWAYS)
COUNTERS = Part("Valkey, by which limits are counted", Phase.LIMIT, Fix.RESTORE_COUNTERS)
BUDGETS = Part("a budget's spending, which is not known", Phase.LIMIT, Fix.AWAIT_BUDGETS)
RESPONSES = Part("PostgreSQL, where responses are stored", Phase.ARRIVAL, Fix.RESTORE_DATABASE)
JOURNAL = Part("the journal's disk", Phase.LIMIT, Fix.RESTORE_JOURNAL)
ROUTER = Part("the router", Phase.ROUTE, Fix.RESTORE_ROUTER)
ADAPTERS = Part("an adapter that an engine could not load", Phase.ENGINE, Fix.REPAIR_ADAPTER)
DEFECT = Part("a defect in Slipstream", Phase.GATEWAY, Fix.REPORT_DEFECT)
PARTS = {
    "auth_unavailable": KEYS,
    "preparation_timeout": PREPARATION,
    "connections_exhausted": CONNECTIONS,
    "draining": RESTARTS,
    "limiter_unavailable": COUNTERS,
    "budget_unavailable": BUDGETS,
    "journal_unavailable": JOURNAL,
    "response_store_unavailable": RESPONSES,
    "router_unavailable": ROUTER,
    "adapter_unavailable": ADAPTERS,
}
"""By error code; any other code is a defect."""
OTHERS = frozenset(engine_failures.CODES) | frozenset(queue.SHED)
"""Codes that other rules judge."""
WOULD_NOT_HELP = (
    WouldNotHelp(Fix.MORE_REPLICAS, "no engine refused or failed: more replicas depend on the same failing part"),
    WouldNotHelp(Fix.RAISE_LIMIT, "nothing was refused by a limit"),
    WouldNotHelp(Fix.SPECULATIVE_DECODING, "a request that fails is not a slow one"),
    WouldNotHelp(Fix.CHUNKED_PREFILL, "a request that fails is not a slow one"),
)


def judge(evidence: Evidence, objectives: Objectives) -> Verdict:
    """Judge by the error codes that are neither engine failures nor lack of room."""
    now = evidence.now
    failures = [failure for failure in now.failures if failure.code not in OTHERS]
    count = sum(failure.count for failure in failures)
    part = failing_part(now, {failure.code for failure in failures}, SHARE, FEWEST)
    if part is None and (count < FEWEST or count < SHARE * now.requests):
        return Clear(Cause.PLATFORM_FAILURES)
    by_part: Counter[Part] = Counter()
    for failure in failures:
        by_part[PARTS.get(failure.code, DEFECT)] += failure.count
    ranked = [part for part, _ in by_part.most_common()]
    by_count = sorted(failures, key=lambda failure: failure.count, reverse=True)
    codes = "; ".join(f"{each.count:,} {each.code} ({PARTS.get(each.code, DEFECT).name})" for each in by_count)
    return Finding(
        cause=Cause.PLATFORM_FAILURES,
        phase=ranked[0].phase,
        evidence=(
            f"Of {now.requests:,} requests {count:,} ended with an error of the platform: {codes}.",
            *([] if part is None else [part.told]),
        ),
        fixes=tuple(part.fix for part in ranked),
        would_not_help=WOULD_NOT_HELP,
    )
