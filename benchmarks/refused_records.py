"""What does the record of a refused request cost the gateway's loop, and what does a flood of them leave in memory?

    python -m benchmarks.refused_records [--records 50_000]

CPU time of `Traces.refused` for a request that one of eighteen counters refused, beside one without a rule (the cost of
any record). The database write is not in it: batches of 1,000 leave between requests. Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any
from uuid import uuid4

from prometheus_client import CollectorRegistry

from contracts.errors import RevokedKey, SlipstreamError
from contracts.generation import Caller, Tier
from contracts.phases import Phase
from gateway.limits.cost import Cost
from gateway.limits.levels import Level, Levels, Limits, Rule
from gateway.limits.plan import Decision, Status, plan_of
from gateway.limits.refusal import refused
from gateway.observability.metrics import GatewayMetrics
from gateway.serving.request import Arrival
from gateway.serving.trace import MAX_REFUSALS_WAITING, Traces
from gateway.wire.config import RequestConfig
from gateway.wire.openai.format import ChatFormat

LIMITS = Limits(60, 10_000, 10_000, 20_000, 4, 1_000_000)


def main(records: int) -> None:
    """Measure and print."""
    caller = Caller(str(uuid4()), str(uuid4()), str(uuid4()))
    ids = (caller.organization_id, caller.project_id, caller.key_id)
    rules = [Rule(level, subject, None, LIMITS) for level, subject in zip(Level, ids, strict=True)]
    plan = plan_of("bench", Levels.of(caller.organization_id, rules), Tier.CHAT)
    assert plan is not None
    decision = Decision(Status.REFUSED, 1, 1, 900, 1_700_000_000_000, (0, 5, 5, 5, 1, 5, 0) * 3)
    limited = refused(plan, decision, Cost(100, 100, 0), "USD")
    with_rule_us = _cost_us(limited, caller, records)
    plain_us = _cost_us(RevokedKey("This API key has been revoked."), caller, records)
    print(f"record of a refusal: {with_rule_us:.1f} us with a rule and 18 counters, {plain_us:.1f} us without")
    line = {
        "with_rule_us": round(with_rule_us, 1),
        "plain_us": round(plain_us, 1),
        "ratio": round(with_rule_us / plain_us, 2),
        "kept_of_a_flood": MAX_REFUSALS_WAITING,
    }
    print(json.dumps(line))


def _cost_us(error: SlipstreamError, caller: Caller, records: int) -> float:
    pool: Any = None  # nothing is flushed
    traces = Traces(pool, GatewayMetrics(CollectorRegistry()), 1.0)
    arrival = Arrival(ChatFormat(RequestConfig()), {})
    arrival.model = "wide"
    arrival.clock.end(Phase.AUTH)
    arrival.clock.end(Phase.LIMIT)
    best = float("inf")
    for _ in range(5):
        began_s = time.process_time()
        for number in range(records // 5):
            arrival.request_id = f"req_{number}"
            traces.refused(arrival, caller, 429, error)
        best = min(best, (time.process_time() - began_s) / (records // 5) * 1e6)
    waiting = len(traces._refused)
    assert waiting <= MAX_REFUSALS_WAITING, waiting
    return best


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=50_000)
    main(parser.parse_args().records)
