"""Journal, crashes, replays and shipping in any order and any number of times, into a real PostgreSQL.

Every attempt has one row, at most one of a request is billed, and amounts and totals are those of a naive sum.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest
from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from msgspec.structs import replace

from contracts.dated_request_id import arrived_at_s
from contracts.usage import Usage
from control.billing.rollup import roll_up
from control.billing.verification import verify
from gateway.metering.journal.records import AttemptKey, Closed, Opened
from gateway.metering.journal.recovery import Recovery
from gateway.metering.ledger.ledger import Ledger
from gateway.metering.ledger.shipper import Shipper
from storage.engine import lazy_pool
from tests.control.billing.test_rollup import DAYS, PRICE
from tests.databases import as_owner
from tests.examples import examples
from tests.gateway.metering.rows import moment, row
from tests.gateway.metering.samples import metrics, placed, quick, start
from tests.temporary import short_folder

ResultT = TypeVar("ResultT")
BEGIN, END = moment("2026-03-01 22:00"), moment("2026-03-03 02:00")
RATES = {
    "small": (0.0, 200_000, 20_000, 250_000, 800_000),
    "large": (moment("2026-03-02"), 3_000_000, 300_000, 0, 15_000_000),
}
"""As in `PRICE`: from when on, and micro-units for a million tokens: fresh, cached, written, output."""
TRUNCATE_ROLL_UPS = """
TRUNCATE gateway.usage_hourly, gateway.usage_daily, gateway.project_usage_daily, gateway.organization_usage_hourly,
         gateway.organization_usage_daily, gateway.invoice_days, gateway.invoice_months, gateway.invoice_closings,
         gateway.usage_weekly, gateway.usage_week_closings, gateway.usage_roll_up_runs
"""
PICK = st.integers(0, 10_000)


class Machine(RuleBasedStateMachine):
    """One gateway instance; `url` is set by the test."""

    url: str

    @initialize(seed=PICK)
    def begin(self, seed: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.choose = random.Random(seed)
        self.folder = short_folder()
        self.runs = 0
        self.opened: dict[AttemptKey, Opened] = {}
        self.open: dict[AttemptKey, Closed] = {}
        """Attempts under way, with the end they will have."""
        self.ended: dict[AttemptKey, Closed] = {}
        with psycopg.connect(as_owner(self.url), autocommit=True) as connection:
            connection.execute("ALTER TABLE gateway.usage_events DISABLE TRIGGER refuse_truncate")
            days = connection.execute("SELECT relname FROM pg_class WHERE relname ~ '^usage_events_[0-9]+$'").fetchall()
            for (name,) in days:
                connection.execute(f"DROP TABLE gateway.{name}".encode())
            connection.execute(TRUNCATE_ROLL_UPS)
        self.run(self._start())

    def run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        return self.loop.run_until_complete(asyncio.wait_for(work, 60))

    async def _start(self) -> None:
        self.pool = await lazy_pool(self.url, size=2, connect_timeout_s=5)
        self.ledger = Ledger(self.pool)
        self.journal = await start(self.folder / "0")

    @rule()
    def open_a_request(self) -> None:
        self._open(row(self.choose, BEGIN, END))

    @precondition(lambda self: self.opened)
    @rule(pick=PICK)
    def open_another_attempt(self, pick: int) -> None:
        request_id = list(self.opened)[pick % len(self.opened)][0]
        attempt = max(number for name, number in self.opened if name == request_id) + 1
        before = self.opened[request_id, 0]
        end = row(self.choose, BEGIN, END, request_id, attempt)
        # it may begin on the next day, but it is the same request
        same = replace(before, attempt=attempt, opened_at=before.opened_at + self.choose.choice([1, 86_400]))
        self._open(replace(end, opened=same))

    def _open(self, end: Closed) -> None:
        self.journal.opened(end.opened)
        self.opened[end.key] = end.opened
        self.open[end.key] = end
        if self.choose.random() < 0.9:
            self.journal.placed(placed(end.opened))

    @precondition(lambda self: self.open)
    @rule(pick=PICK)
    def close_one(self, pick: int) -> None:
        key = list(self.open)[pick % len(self.open)]
        end = self.ended[key] = self.open.pop(key)
        self.run(self.journal.closed(end))

    @rule()
    def ship(self) -> None:
        self.run(self._ship())

    async def _ship(self) -> None:
        shipper = Shipper(self.journal, self.ledger, quick(batch_rows=7), metrics())
        shipper.start()
        assert await shipper.drain(30)
        await shipper.stop()

    @rule(forget=st.booleans())
    def crash_and_start_again(self, forget: bool) -> None:
        """forget: the shipped position was not on disk; everything that is still in files is shipped again."""
        self.runs += 1
        after = self.folder / str(self.runs)
        shutil.copytree(self.journal._folder.path, after)
        (after / "lock").unlink()
        if forget:
            (after / "shipped").unlink(missing_ok=True)
        self.run(self._restart(after))

    async def _restart(self, path: Path) -> None:
        await self.journal.stop()
        self.journal = await start(path)

        async def ask(url: str, driver: str, request_id: str, attempt: int) -> Usage:
            return self.open[request_id, attempt].usage

        left = [found.opened.key for found in self.journal.left_open]
        assert set(left) == set(self.open)
        places = {found.opened.key for found in self.journal.left_open if found.placed is not None}
        await Recovery(self.journal, ask, quick(resolve_timeout_s=60), metrics()).resolve()
        for key in left:
            end = self.open.pop(key)
            self.ended[key] = replace(end, billed=False, usage=end.usage if key in places else Usage())

    @precondition(lambda self: self.ended)
    @rule(seed=PICK)
    def rows_come_another_way(self, seed: int) -> None:
        """Some rows, in any order, some twice, as another instance that adopted the folder would send them."""
        choose = random.Random(seed)
        known = [end for end in self.ended.values() if not end.billed or self._only_billed(end)]
        rows = choose.choices(known, k=choose.randrange(1, 6)) if known else []
        if rows:
            self.run(self.ledger.insert(rows, "another"))

    def _only_billed(self, end: Closed) -> bool:
        """No other attempt of the request is billed: only a shipper knows what to do then."""
        others = (one for key, one in self.ended.items() if key[0] == end.key[0] and key != end.key)
        return not any(one.billed for one in others)

    @rule()
    def roll_up(self) -> None:
        roll_up(self.url)

    def teardown(self) -> None:
        if not hasattr(self, "loop"):
            return
        try:
            self.crash_and_start_again(False)
            self.ship()
            self.check()
        finally:
            self.run(self._stop())
            self.loop.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    async def _stop(self) -> None:
        await self.journal.stop()
        await self.pool.close()

    def check(self) -> None:
        """What must hold in the end."""
        with psycopg.connect(self.url) as connection:
            found = connection.execute(
                "SELECT request_id, attempt, billed, prompt_tokens, cached_tokens, cache_write_tokens,"
                " completion_tokens, amount_micro FROM gateway.usage_events"
            ).fetchall()
        keys = Counter((request_id, attempt) for request_id, attempt, *_ in found)
        assert keys == Counter(dict.fromkeys(self.opened, 1))
        billed = Counter(request_id for request_id, _, is_billed, *_ in found if is_billed)
        wanted = {key[0] for key, end in self.ended.items() if end.billed}
        assert billed == Counter(dict.fromkeys(wanted, 1))
        sum_micro = 0
        for request_id, attempt, is_billed, *counts, amount in found:
            end = self.ended[request_id, attempt]
            usage = end.usage
            assert counts == [
                usage.prompt_tokens, usage.cached_tokens, usage.cache_write_tokens, usage.completion_tokens
            ]  # fmt: skip
            assert amount == (naive_amount(end) if is_billed else 0)
            sum_micro += amount
        assert verify(self.url, *DAYS).right
        with psycopg.connect(self.url) as connection:
            totals = connection.execute("SELECT sum(requests), sum(amount_micro) FROM gateway.usage_hourly").fetchone()
        assert totals is not None
        assert (totals[0] or 0, totals[1] or 0) == (len(wanted), sum_micro)


def naive_amount(end: Closed) -> int:
    """What the row costs, from nothing but the prices of `PRICE`."""
    begin, fresh, read, write, out = RATES.get(end.opened.model, (0.0, 0, 0, 0, 0))
    if (arrived_at_s(end.opened.request_id) or 0) < begin:
        return 0
    usage = end.usage
    plain = usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens
    cost = plain * fresh + usage.cached_tokens * read + usage.cache_write_tokens * write + usage.completion_tokens * out
    return (cost + 500_000) // 1_000_000


@pytest.mark.hypothesis
def test_every_attempt_has_one_row_and_totals_add_up(fresh_postgres_url: str) -> None:
    with psycopg.connect(fresh_postgres_url, autocommit=True) as connection:
        connection.execute(PRICE.encode())
    machine = type("OnThisDatabase", (Machine,), {"url": fresh_postgres_url})
    run_state_machine_as_test(
        machine,
        settings=examples(
            nightly=40,
            gate=4,
            stateful_step_count=30,
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )
