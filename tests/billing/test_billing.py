"""The ledger is the engines' own count, to the token, whatever is killed meanwhile: 1,000 requests in the gate, 20,000
at night. `make test-billing REQUESTS=200000` chooses another number.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.billing.comparison import compare
from tests.billing.doctored import MUTANTS
from tests.billing.trial import AT_ONCE, EXACT, FEW_KILLS, KILLS, Kills, Report, Trial, billing_deployment

REQUESTS = 1_000
REQUESTS_AT_NIGHT = int(os.environ.get("SLIPSTREAM_TEST_BILLING_REQUESTS", "20000"))


def kills_for(requests: int) -> Kills:
    """Restarts take their time whatever the load: a short run has fewer."""
    return KILLS if requests >= 10_000 else FEW_KILLS


def check(report: Report) -> None:
    """Everything the trial promises."""
    comparison = report.comparison
    assert comparison.right, report.table()
    assert report.killed == [name for _, name in kills_for(report.requests)]
    # the draws, which are the same on every machine; who stays is answered, unless its gateway is killed meanwhile
    staying, cut = report.staying, AT_ONCE * len(report.killed)
    assert report.requests * 0.5 < staying.total() < report.requests * 0.85
    assert report.ends["answered"] >= staying.total() - cut
    assert comparison.attempts >= staying[EXACT] - cut
    assert report.without_engine_path == 0
    assert report.amount_micro == report.expected_amount_micro > 0
    # whoever left, at whatever moment: what an engine worked off is billed, but for gateways that were killed
    assert set(report.unbilled) <= {"gateway_crash"}, report.table()
    for work in report.works:
        assert staying[work.model] > report.requests * 0.01, report.table()
        assert work.attempts > 0, report.table()
        assert work.missing <= work.crashed_bound + work.left_bound, report.table()
        assert work.read_tokens - work.crashed_bound <= work.billed_output_tokens, report.table()
        assert work.billed_output_tokens <= work.output_tokens, report.table()
    # the same comparison fails when this ledger is off by one row
    for mutant in MUTANTS:
        assert not compare(report.counted, mutant(list(report.rows), random.Random(1))).right, mutant.__name__


async def trial(requests: int, seed: int) -> Report:
    """One run, printed."""
    async with billing_deployment(records=requests * 2) as (running, engines):
        report = await Trial(running, engines, requests, kills_for(requests), seed).run()
    print(report.table())
    print(report.line(), flush=True)
    return report


async def test_the_ledger_is_what_the_engines_counted() -> None:
    check(await trial(REQUESTS, seed=20))


@pytest.mark.nightly
@pytest.mark.timeout(max(600, REQUESTS_AT_NIGHT // 20))
async def test_the_ledger_is_what_the_engines_counted_all_night() -> None:
    check(await trial(REQUESTS_AT_NIGHT, seed=200))
