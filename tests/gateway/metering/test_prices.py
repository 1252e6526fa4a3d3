from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.usage import Usage
from gateway.db.engine import lazy_pool
from gateway.metering.ledger.ledger import Ledger
from gateway.metering.pricing.price import MAX_MICRO, PER_TOKENS, Price
from gateway.metering.pricing.prices import PriceBook
from tests.database import as_owner
from tests.gateway.metering.rows import moment, row
from tests.waiting import eventually

DAY_S = 86_400.0
counts = st.integers(0, 2**31 - 1)
rates = st.integers(0, MAX_MICRO)


def price(model: str = "m", begin: float = 0.0, end: float | None = None, version: int = 1, rate: int = 100) -> Price:
    return Price(version, model, begin, end, rate, rate // 10, rate, rate * 4)


@given(counts, counts, counts, counts, rates, rates, rates, rates)
def test_an_amount_is_the_exact_cost_rounded_once_and_never_above_its_bound(
    prompt: int, cached: int, written: int, output: int, fresh: int, read: int, write: int, out: int
) -> None:
    one = Price(1, "m", 0, None, fresh, read, write, out)
    usage = Usage(prompt_tokens=prompt, completion_tokens=output, cached_tokens=cached, cache_write_tokens=written)
    cached = min(cached, prompt)
    written = min(written, prompt - cached)
    exact = Fraction((prompt - cached - written) * fresh + cached * read + written * write + output * out, PER_TOKENS)
    amount = one.amount_micro(usage)
    assert abs(amount - exact) <= Fraction(1, 2)
    assert amount <= one.bound_micro(prompt, output)


def test_the_price_is_that_of_the_moment_of_arrival() -> None:
    book = PriceBook(None)
    assert not book.loaded
    book.replace([price(begin=10, end=20, version=1), price(begin=20, version=2), price("x", begin=30, end=40)])
    found = [book.price("m", at) for at in (9.999, 10, 19.999, 20, 1e12)]
    assert [one.version if one else None for one in found] == [None, 1, 1, 2, 2]
    assert book.price("x", 40) is None
    assert book.price("y", 30) is None
    assert book.bound_micro("y", 1_000_000, 1_000_000) == 0
    assert book.bound_micro("m", 1_000_000, 1_000_000) == 100 + 400
    assert book.bound_micro("m", 1, 0) == 1  # rounded up


async def add(connection: Any, one: Price) -> int:
    return int(
        await connection.fetchval(
            """
            INSERT INTO gateway.prices (model, valid_from, valid_until, input_micro, cached_input_micro,
                                        cache_write_micro, output_micro)
            VALUES ($1, to_timestamp($2), to_timestamp($3), $4, $5, $6, $7) RETURNING version
            """,
            one.model, one.valid_from, one.valid_until, one.input_micro, one.cached_input_micro, one.cache_write_micro,
            one.output_micro,
        )
    )  # fmt: skip


async def test_two_prices_of_a_model_never_overlap(fresh_postgres_url: str) -> None:
    connection = await asyncpg.connect(fresh_postgres_url)
    await add(connection, price(begin=1e9, end=2e9))
    await add(connection, price(begin=2e9))
    await add(connection, price("another", begin=1e9))
    for begin, end in ((0.0, None), (1e9, 2e9), (1.5e9, 1.6e9), (1.9e9, 2.1e9), (3e9, None)):
        with pytest.raises(asyncpg.ExclusionViolationError):
            await add(connection, price(begin=begin, end=end))
    await add(connection, price(begin=0, end=1e9))
    await connection.close()


async def test_what_was_billed_at_a_price_cannot_be_changed(fresh_postgres_url: str) -> None:
    connection = await asyncpg.connect(fresh_postgres_url)
    version = await add(connection, price(begin=1e9))
    ended = await add(connection, price("ended", begin=1e9, end=1.1e9))
    planned = await add(connection, price("planned", begin=4e9))
    for change in ("output_micro = 1", "model = 'x'", "valid_from = now()", "valid_until = now() - interval '1 hour'"):
        with pytest.raises(asyncpg.RestrictViolationError):
            await connection.execute(f"UPDATE gateway.prices SET {change} WHERE version = $1", version)
    with pytest.raises(asyncpg.RestrictViolationError):
        await connection.execute("UPDATE gateway.prices SET valid_until = NULL WHERE version = $1", ended)
    with pytest.raises(asyncpg.RestrictViolationError):
        await connection.execute("DELETE FROM gateway.prices WHERE version = $1", version)
    await connection.execute(
        "UPDATE gateway.prices SET valid_until = $2 WHERE version = $1", version, datetime.now(UTC) + timedelta(days=1)
    )
    await connection.execute("DELETE FROM gateway.prices WHERE version = $1", planned)
    await connection.close()


async def test_the_database_computes_what_the_price_does(fresh_postgres_url: str) -> None:
    choose = random.Random(5)
    begin = moment("2026-03-01")
    async with lazy_pool(fresh_postgres_url, size=2, connect_timeout_s=5) as pool:
        for model, changes in (("small", (0, 1, 2)), ("large", (0.5,))):
            edges = [begin + day * DAY_S for day in changes]
            for number, (start, end) in enumerate(zip(edges, [*edges[1:], None], strict=True)):
                odd = Price(0, model, start, end, 123_457 + number, 12_345, 777_777, 1_999_999 + number)
                await add(pool, odd)
        book = PriceBook(pool)
        await book.start()
        await book.stop()
        rows = [row(choose, begin, begin + 3 * DAY_S) for _ in range(2_000)]
        # a price holds from its very first millisecond on
        rows += [row(choose, at, at) for at in (begin + day * DAY_S for day in (0, 0.5, 1, 2)) for _ in range(20)]
        assert await Ledger(pool).insert(rows, "g") == len(rows)
        stored = {
            found["request_id"]: (found["price_version"], found["amount_micro"])
            for found in await pool.fetch("SELECT request_id, price_version, amount_micro FROM gateway.usage_events")
        }
        versions = set()
        for one in rows:
            # the database and the id know the arrival to the millisecond
            arrived = int(one.opened.opened_at * 1000) / 1000
            known = book.price(one.opened.model, arrived) if one.billed else None
            assert stored[one.opened.request_id] == (
                (known.version, known.amount_micro(one.usage)) if known else (None, 0)
            )
            versions.add(known.version if known else None)
        assert len(versions) == 5


async def test_a_book_keeps_its_prices_while_the_database_is_away(
    fresh_postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        lazy_pool(fresh_postgres_url, size=1, connect_timeout_s=5) as pool,
        lazy_pool(as_owner(fresh_postgres_url), size=1, connect_timeout_s=5) as owner,
    ):
        await add(pool, price(begin=0))
        book = PriceBook(pool, refresh_s=0.01)
        await book.start()
        assert book.bound_micro("m", 1_000_000, 0) == 100
        await owner.execute("ALTER TABLE gateway.prices RENAME TO away")
        version = await pool.fetchval("SELECT max(version) FROM gateway.away")
        await eventually(lambda: "the last known stay in force" in caplog.text)
        known = book.price("m")
        assert known is not None
        assert known.version == version
        await owner.execute("ALTER TABLE gateway.away RENAME TO prices")
        await add(pool, price("new", begin=0))
        await eventually(lambda: book.price("new"))
        await book.stop()
