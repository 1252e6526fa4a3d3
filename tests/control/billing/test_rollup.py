from __future__ import annotations

import asyncio
import random
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from fractions import Fraction
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from msgspec.structs import replace

from contracts.dated_request_id import arrived_at_s
from contracts.usage import Usage
from control.billing.invoice import Invoice, invoice_of, quick_invoice_of
from control.billing.invoice_rollup import next_month
from control.billing.rollup import roll_up
from control.billing.verification import verify
from gateway.metering.journal.records import Closed
from gateway.metering.ledger.ledger import Ledger
from storage.engine import connect, lazy_pool
from tests.databases import as_owner
from tests.gateway.metering.rows import moment, row

BEGIN = moment("2026-03-01 21:00")
END = BEGIN + 30 * 3_600
DAY = timedelta(days=1)
DAYS = (date(2026, 3, 1), date(2026, 3, 4))
COUNTED = (
    "requests", "prompt_tokens", "cached_tokens", "cache_write_tokens", "completion_tokens", "reasoning_tokens",
    "draft_tokens", "accepted_draft_tokens",
)  # fmt: skip
PRICE = """
INSERT INTO gateway.prices (model, valid_from, input_micro, cached_input_micro, cache_write_micro, output_micro)
VALUES ('small', '2020-01-01', 200000, 20000, 250000, 800000), ('large', '2026-03-02', 3000000, 300000, 0, 15000000)
"""
PRICE_OF_LARGE_NUMBERS = """
INSERT INTO gateway.prices (model, valid_from, input_micro, cached_input_micro, cache_write_micro, output_micro)
VALUES ('won', '2020-01-01', $1, $1, $1, $1)
"""
OWNERS = ("organization_id", "project_id", "key_id")
Totals = dict[tuple[Any, ...], list[int]]


@pytest.fixture
async def pool(fresh_postgres_url: str) -> AsyncIterator[asyncpg.Pool[Any]]:
    async with lazy_pool(fresh_postgres_url, size=2, connect_timeout_s=5) as pool:
        await pool.execute(PRICE)
        yield pool


def naive(rows: Iterable[Closed], seconds: int, amounts: dict[str, int]) -> Totals:
    """The same totals, added up one by one."""
    totals: Totals = defaultdict(lambda: [0] * (len(COUNTED) + 1))
    for one in rows:
        if not one.billed:
            continue
        opened, usage = one.opened, one.usage
        arrived = int(arrived_at_s(opened.request_id) or opened.opened_at)
        begin = datetime.fromtimestamp(arrived - arrived % seconds, UTC)
        key = (begin, opened.organization_id, opened.project_id, opened.key_id, opened.model, opened.tier.value)
        added = (
            1, usage.prompt_tokens, usage.cached_tokens, usage.cache_write_tokens, usage.completion_tokens,
            usage.reasoning_tokens, usage.draft_tokens, usage.accepted_draft_tokens, amounts[opened.request_id],
        )  # fmt: skip
        totals[key] = [sum(pair) for pair in zip(totals[key], added, strict=True)]
    return dict(totals)


def without(totals: Totals, *places: int) -> Totals:
    """The same with the owners at these places of the key no longer told apart."""
    coarser: Totals = defaultdict(lambda: [0] * (len(COUNTED) + 1))
    for key, sums in totals.items():
        shorter = tuple(part for at, part in enumerate(key) if at not in places)
        coarser[shorter] = [sum(pair) for pair in zip(coarser[shorter], sums, strict=True)]
    return dict(coarser)


def by_week(totals: Totals) -> Totals:
    """Of days, by the Monday of their week."""
    weeks: Totals = defaultdict(lambda: [0] * (len(COUNTED) + 1))
    for (begin, *key), sums in totals.items():
        week = (begin - timedelta(days=begin.weekday()), *key)
        weeks[week] = [sum(pair) for pair in zip(weeks[week], sums, strict=True)]
    return dict(weeks)


async def stored(pool: asyncpg.Pool[Any], table: str, time: str, owners: Sequence[str] = OWNERS) -> Totals:
    found = await pool.fetch(
        f"SELECT {time}, {', '.join(f'{owner}::text' for owner in owners)}, model, tier, "
        f"{', '.join(COUNTED)}, amount_micro FROM gateway.{table}"
    )
    result = {}
    for record in found:
        begin, *key = tuple(record)[: 3 + len(owners)]
        if not isinstance(begin, datetime):
            begin = datetime(begin.year, begin.month, begin.day, tzinfo=UTC)
        result[(begin.astimezone(UTC), *key)] = list(tuple(record)[3 + len(owners) :])
    return result


async def amounts(pool: asyncpg.Pool[Any]) -> dict[str, int]:
    return dict(await pool.fetch("SELECT request_id, amount_micro FROM gateway.usage_events"))


@pytest.mark.parametrize("seed", [1, 2])
async def test_totals_are_those_of_a_naive_sum_in_whatever_order_rows_come(
    pool: asyncpg.Pool[Any], fresh_postgres_url: str, seed: int
) -> None:
    choose = random.Random(seed)
    rows = [row(choose, BEGIN, END) for _ in range(400)]
    rows += [row(choose, BEGIN, END, f"req_{number}") for number in range(10)]  # ids without a time
    for one in rows[400:]:  # what counts for them is when they were opened
        assert BEGIN <= one.opened.opened_at < END
    choose.shuffle(rows)
    ledger = Ledger(pool)
    for start in range(0, len(rows), 70):
        await ledger.insert(rows[: start + 70], "g")  # and again what is there
        await asyncio.gather(*(asyncio.to_thread(roll_up, fresh_postgres_url) for _ in range(choose.randrange(3))))
    await asyncio.to_thread(roll_up, fresh_postgres_url)
    billed = await amounts(pool)
    hours, days = naive(rows, 3_600, billed), naive(rows, 86_400, billed)
    assert await stored(pool, "usage_hourly", "hour") == hours
    assert await stored(pool, "usage_daily", "day") == days
    assert await stored(pool, "usage_weekly", "week") == by_week(days)
    assert await stored(pool, "project_usage_daily", "day", OWNERS[:2]) == without(days, 3)
    assert await stored(pool, "organization_usage_daily", "day", OWNERS[:1]) == without(days, 2, 3)
    assert await stored(pool, "organization_usage_hourly", "hour", OWNERS[:1]) == without(hours, 2, 3)
    assert (await asyncio.to_thread(verify, fresh_postgres_url, *DAYS)).right


async def invoices(pool: asyncpg.Pool[Any], month: datetime) -> list[tuple[Invoice, Invoice]]:
    """Of each organization: from the events alone, and with the totals of closed hours."""
    past = datetime.combine(next_month(month.date()), time(), UTC)
    found = await pool.fetch("SELECT DISTINCT organization_id FROM gateway.usage_events")
    async with pool.acquire() as connection:
        return [
            (
                await invoice_of(connection, each["organization_id"], month, past, "USD"),
                await quick_invoice_of(connection, each["organization_id"], month, past, "USD"),
            )
            for each in found
        ]


@pytest.mark.parametrize("seed", [1, 2])
async def test_an_invoice_with_closed_hours_is_that_of_its_events(
    pool: asyncpg.Pool[Any], fresh_postgres_url: str, seed: int
) -> None:
    choose = random.Random(seed)
    now = datetime.now(UTC)
    months = {moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0) for moment in (now, now - 3 * DAY)}
    ledger = Ledger(pool)
    for until in (now - DAY, now, now):
        # some of them late, of hours that an earlier run has closed
        rows = [row(choose, (now - 3 * DAY).timestamp(), until.timestamp()) for _ in range(150)]
        await ledger.insert(rows, "g")
        if until < now:
            pairs = [pair for month in months for pair in await invoices(pool, month)]
            assert all(exact == quick for exact, quick in pairs), "nothing is closed"
        await asyncio.to_thread(roll_up, fresh_postgres_url)
        begun = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
        await ledger.insert([row(choose, begun.timestamp(), datetime.now(UTC).timestamp())], "g")  # in an open hour
        pairs = [pair for month in months for pair in await invoices(pool, month)]
        assert all(exact == quick for exact, quick in pairs)
        assert sum(exact.amount_micro for exact, _ in pairs) == sum((await amounts(pool)).values())
    assert await pool.fetchval("SELECT count(*) FROM gateway.invoice_days WHERE day < current_date") > 0
    period = ((now - 4 * DAY).date(), (now + DAY).date())
    assert (await asyncio.to_thread(verify, fresh_postgres_url, *period)).right


async def test_an_invoice_of_a_currency_with_large_numbers_has_exact_amounts(pool: asyncpg.Pool[Any]) -> None:
    """Fault: rates times tokens left 64 bits at 500 million tokens for 20,000 KRW a million, and the invoice failed."""
    month, rate, tokens, count = datetime(2026, 3, 1, tzinfo=UTC), 20_000_000_001, 2_000_000_001, 3
    await pool.execute(PRICE_OF_LARGE_NUMBERS, rate)
    rows = [
        replace(one, opened=replace(one.opened, model="won"), usage=Usage(tokens, 0), billed=True)
        for one in (row(random.Random(number), BEGIN, END) for number in range(count))
    ]
    await Ledger(pool).insert(rows, "g")
    end = datetime.combine(next_month(month.date()), time(), UTC)
    async with pool.acquire() as connection:
        invoice = await invoice_of(connection, UUID(rows[0].opened.organization_id), month, end, "KRW")
    assert invoice.amount_micro == count * round(Fraction(tokens * rate, 1_000_000))
    assert Fraction(invoice.unrounded_micro) == Fraction(count * tokens * rate, 1_000_000)
    assert invoice.rounding_micro == invoice.amount_micro - invoice.unrounded_micro


CHANGED: tuple[tuple[str, tuple[int, int, int]], ...] = (
    ("UPDATE gateway.usage_hourly SET completion_tokens = completion_tokens + 1 "
     "WHERE ctid = (SELECT ctid FROM gateway.usage_hourly LIMIT 1)", (1, 0, 0)),
    ("DELETE FROM gateway.usage_hourly WHERE hour = '2026-03-02 03:00Z'", (1, 0, 0)),
    ("UPDATE gateway.usage_daily SET amount_micro = amount_micro - 1 WHERE day = '2026-03-02'", (0, 1, 0)),
    ("UPDATE gateway.project_usage_daily SET requests = requests + 1 WHERE day = '2026-03-02'", (0, 1, 0)),
    ("DELETE FROM gateway.organization_usage_daily WHERE day = '2026-03-03'", (0, 1, 0)),
    ("UPDATE gateway.invoice_days SET uncached_tokens = uncached_tokens + 1 WHERE day = '2026-03-02'", (0, 2, 0)),
    ("UPDATE gateway.invoice_months SET amount_micro = amount_micro + 1", (0, 1, 0)),
    ("UPDATE gateway.usage_weekly SET requests = requests + 1 WHERE week = '2026-03-02'", (0, 1, 0)),
    ("DELETE FROM gateway.usage_weekly WHERE week = '2026-02-23'", (0, 1, 0)),
    ("DELETE FROM gateway.organization_usage_hourly WHERE hour = '2026-03-02 03:00Z'", (1, 0, 0)),
    ("INSERT INTO gateway.usage_hourly SELECT '2026-03-01 00:00Z', organization_id, project_id, key_id, model, "
     "tier, 1, 1, 1, 1, 1, 1, 1 FROM gateway.usage_hourly LIMIT 1", (1, 0, 0)),
)  # fmt: skip
"""Changes of totals, and how many hours, days and amounts are then wrong."""


async def test_verification_finds_one_changed_total(pool: asyncpg.Pool[Any], fresh_postgres_url: str) -> None:
    choose = random.Random(9)
    await Ledger(pool).insert([row(choose, BEGIN, END) for _ in range(300)], "g")
    first = await asyncio.to_thread(verify, fresh_postgres_url, *DAYS)
    assert (first.right, first.rows) == (True, 300)
    # long ago, so that no row counts as news that the next run would redo anyway
    await recorded_earlier(fresh_postgres_url)
    owner = await connect(as_owner(fresh_postgres_url))
    for change, wrong in CHANGED:
        table = re.search(r"gateway\.(\w+)", change)
        assert table is not None
        await owner.execute(f"CREATE TEMPORARY TABLE kept AS SELECT * FROM {table[0]}")
        await pool.execute(change)
        found = await asyncio.to_thread(verify, fresh_postgres_url, *DAYS)
        assert (found.wrong_hours, found.wrong_days, found.wrong_amounts) == wrong, change
        kept = await pool.fetchrow(
            "SELECT wrong_hours, wrong_days FROM gateway.usage_verifications ORDER BY checked_at DESC"
        )
        assert tuple(kept) == wrong[:2]
        await owner.execute(f"DELETE FROM {table[0]}")
        await owner.execute(f"INSERT INTO {table[0]} SELECT * FROM kept")
        await owner.execute("DROP TABLE kept")
    await owner.close()
    assert (await asyncio.to_thread(verify, fresh_postgres_url, *DAYS)).right


async def recorded_earlier(url: str) -> None:
    """All rows of the ledger, a day before now."""
    owner = await connect(as_owner(url))
    partitions = await owner.fetch("SELECT inhrelid::regclass::text FROM pg_inherits"
                                   " WHERE inhparent = 'gateway.usage_events'::regclass")  # fmt: skip
    for table in ("gateway.usage_events", *(name for (name,) in partitions)):
        await owner.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
    await owner.execute("UPDATE gateway.usage_events SET recorded_at = recorded_at - interval '1 day'")
    await owner.close()


async def test_rows_that_come_after_a_clock_was_set_back_are_added_up(
    pool: asyncpg.Pool[Any], fresh_postgres_url: str
) -> None:
    """It was ahead when the last run began: by its moment nothing is news for two hours."""
    choose, now = random.Random(4), datetime.now(UTC).timestamp()
    ledger = Ledger(pool)
    await asyncio.to_thread(roll_up, fresh_postgres_url)
    for column, table in (("started_at", "usage_roll_up_runs"), ("until", "invoice_closings")):
        await pool.execute(f"UPDATE gateway.{table} SET {column} = {column} + interval '2 hours'")
    rows = [row(choose, now - 7_200, now) for _ in range(50)]
    await ledger.insert(rows, "g")
    assert await asyncio.to_thread(roll_up, fresh_postgres_url, rest=10.0) > 0
    assert await stored(pool, "usage_hourly", "hour") == naive(rows, 3_600, await amounts(pool))
    for month in {(datetime.now(UTC) - back).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
                  for back in (timedelta(), timedelta(hours=2))}:  # fmt: skip
        assert all(exact == quick for exact, quick in await invoices(pool, month))
    period = ((datetime.now(UTC) - DAY).date(), (datetime.now(UTC) + DAY).date())
    assert (await asyncio.to_thread(verify, fresh_postgres_url, *period)).right


async def test_hours_that_are_closed_while_an_invoice_is_added_up_are_on_it_once(
    pool: asyncpg.Pool[Any], fresh_postgres_url: str
) -> None:
    choose, now = random.Random(5), datetime.now(UTC)
    month = (now - DAY).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    end = datetime.combine(next_month(month.date()), time(), UTC)
    await Ledger(pool).insert([row(choose, month.timestamp(), (month + DAY).timestamp()) for _ in range(50)], "g")

    class Overtaken:
        """A connection between whose statements the totals are brought up to date."""

        def __init__(self, connection: Any) -> None:
            self._connection = connection

        def __getattr__(self, name: str) -> Any:
            return getattr(self._connection, name)

        async def fetchval(self, *asked: Any, **how: Any) -> Any:
            found = await self._connection.fetchval(*asked, **how)
            await asyncio.to_thread(roll_up, fresh_postgres_url)
            return found

    organization_id = await pool.fetchval("SELECT organization_id FROM gateway.usage_events LIMIT 1")
    async with pool.acquire() as connection:
        exact = await invoice_of(connection, organization_id, month, end, "USD")
        overtaken: Any = Overtaken(connection)
        assert await quick_invoice_of(overtaken, organization_id, month, end, "USD") == exact


async def test_verification_finds_a_changed_amount(pool: asyncpg.Pool[Any], fresh_postgres_url: str) -> None:
    choose = random.Random(9)
    await Ledger(pool).insert([row(choose, BEGIN, END) for _ in range(300)], "g")
    owner = await connect(as_owner(fresh_postgres_url))
    await owner.execute("ALTER TABLE gateway.usage_events DISABLE TRIGGER USER")
    await owner.execute("ALTER TABLE gateway.usage_events_20260302 DISABLE TRIGGER USER")
    changed = await owner.fetchval(
        "WITH one AS (SELECT request_id FROM gateway.usage_events_20260302 WHERE amount_micro > 0 LIMIT 1) "
        "UPDATE gateway.usage_events_20260302 SET amount_micro = amount_micro + 1 "
        "WHERE request_id = (SELECT request_id FROM one) RETURNING 1"
    )
    await owner.close()
    assert changed == 1
    found = await asyncio.to_thread(verify, fresh_postgres_url, *DAYS)
    assert (found.wrong_hours, found.wrong_days, found.wrong_amounts) == (0, 0, 1)
