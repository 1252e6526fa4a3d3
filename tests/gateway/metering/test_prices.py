from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import asyncpg
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.usage import Usage
from gateway.auth.config import AuthConfig
from gateway.auth.keyring import Keyring
from gateway.metering.journal.records import Closed, Opened
from gateway.metering.ledger.ledger import Ledger
from gateway.metering.pricing.price import MAX_MICRO, NO_PRICE, PER_TOKENS, WHOLE, Price
from gateway.metering.pricing.prices import PriceBook
from storage.channels import PRICES_CHANNEL
from storage.engine import lazy_pool
from tests.databases import as_owner
from tests.gateway.metering.rows import moment, row
from tests.waiting import eventually

DAY_S = 86_400.0
STORED = "SELECT request_id, price_version, amount_micro, price_percent FROM gateway.usage_events"
counts = st.integers(0, 2**31 - 1)
rates = st.integers(0, MAX_MICRO)


def price(model: str = "m", begin: float = 0.0, end: float | None = None, version: int = 1, rate: int = 100) -> Price:
    return Price(version, model, begin, end, rate, rate // 10, rate, rate * 4)


@given(counts, counts, counts, counts, rates, rates, rates, rates, st.integers(0, WHOLE))
def test_an_amount_is_the_exact_cost_rounded_once_and_never_above_its_bound(
    prompt: int, cached: int, written: int, output: int, fresh: int, read: int, write: int, out: int, percent: int
) -> None:
    one = Price(1, "m", 0, None, fresh, read, write, out, percent).offline()
    usage = Usage(prompt_tokens=prompt, completion_tokens=output, cached_tokens=cached, cache_write_tokens=written)
    cached = min(cached, prompt)
    written = min(written, prompt - cached)
    exact = Fraction((prompt - cached - written) * fresh + cached * read + written * write + output * out, PER_TOKENS)
    exact *= Fraction(percent, WHOLE)
    amount = one.amount_micro(usage)
    assert abs(amount - exact) <= Fraction(1, 2)
    assert amount <= one.bound_micro(prompt, output)


def test_the_price_is_that_of_the_moment_of_arrival() -> None:
    book = PriceBook(None)
    assert not book.loaded
    book.replace([price(begin=10, end=20, version=1), price(begin=20, version=2), price("x", begin=30, end=40)])
    assert [book.price("m", at).version for at in (9.999, 10, 19.999, 20, 1e12)] == [0, 1, 1, 2, 2]
    assert book.price("x", 40) is book.price("y", 30) is NO_PRICE
    assert NO_PRICE.bound_micro(1_000_000, 1_000_000) == NO_PRICE.amount_micro(Usage(9, 9)) == 0
    assert book.price("m", 20).bound_micro(1_000_000, 1_000_000) == 100 + 400
    assert book.price("m", 20).bound_micro(1, 0) == 1  # rounded up


async def add(connection: Any, one: Price) -> int:
    return int(
        await connection.fetchval(
            """
            INSERT INTO gateway.prices (model, valid_from, valid_until, input_micro, cached_input_micro,
                                        cache_write_micro, output_micro, offline_percent)
            VALUES ($1, to_timestamp($2), to_timestamp($3), $4, $5, $6, $7, $8) RETURNING version
            """,
            one.model, one.valid_from, one.valid_until, one.input_micro, one.cached_input_micro, one.cache_write_micro,
            one.output_micro, one.offline_percent,
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
    for change in (
        "output_micro = 1",
        "offline_percent = 1",
        "model = 'x'",
        "valid_from = now()",
        "valid_until = now() - interval '1 hour'",
    ):
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


def in_class(opened: Opened, offline: bool) -> Opened:
    return msgspec.structs.replace(opened, offline=offline)


async def test_the_database_computes_what_the_price_does(fresh_postgres_url: str) -> None:
    choose = random.Random(5)
    begin = moment("2026-03-01")
    async with lazy_pool(fresh_postgres_url, size=2, connect_timeout_s=5) as pool:
        known = []
        for model, changes in (("small", (0, 1, 2)), ("large", (0.5,))):
            edges = [begin + day * DAY_S for day in changes]
            for number, (start, end) in enumerate(zip(edges, [*edges[1:], None], strict=True)):
                odd = Price(0, model, start, end, 123_457 + number, 12_345, 777_777, 1_999_999 + number, 33 + number)
                known.append(msgspec.structs.replace(odd, version=await add(pool, odd)))
        book = PriceBook(None)
        book.replace(known)
        rows = [row(choose, begin, begin + 3 * DAY_S) for _ in range(2_000)]
        # a price holds from its very first millisecond on
        rows += [row(choose, at, at) for at in (begin + day * DAY_S for day in (0, 0.5, 1, 2)) for _ in range(20)]
        for usage in (Usage(100, 5, cached_tokens=80, cache_write_tokens=80), Usage(100, 5, cached_tokens=300)):
            rows += [msgspec.structs.replace(row(choose, begin, begin + DAY_S), usage=usage) for _ in range(20)]
        rows = [msgspec.structs.replace(one, opened=in_class(one.opened, choose.random() < 0.5)) for one in rows]
        assert await Ledger(pool).insert(rows, "g") == len(rows)
        stored = {
            found["request_id"]: (found["price_version"], found["amount_micro"], found["price_percent"])
            for found in await pool.fetch(STORED)
        }
        versions = set()
        for one in rows:
            # the database and the id know the arrival to the millisecond
            arrived = int(one.opened.opened_at * 1000) / 1000
            then = book.price(one.opened.model, arrived) if one.billed else NO_PRICE
            then = then.offline() if one.opened.offline else then
            assert stored[one.opened.request_id] == (then.version or None, then.amount_micro(one.usage), then.percent)
            versions.add(then.version)
        assert len(versions) == 5


async def test_the_ledger_bills_the_price_that_the_gateway_knew(fresh_postgres_url: str) -> None:
    choose, begin = random.Random(6), moment("2026-03-01")
    async with lazy_pool(fresh_postgres_url, size=2, connect_timeout_s=5) as pool:
        first = await add(pool, price("small", begin - 1, begin, rate=1_000_000))
        second = await add(pool, price("small", begin, rate=2_000_000))
        other = await add(pool, price("large", begin, rate=3_000_000))
        billed: dict[int | None, Closed] = {}
        for known in (None, 0, first, second, other):
            one = row(choose, begin, begin)
            opened = msgspec.structs.replace(one.opened, model="small", known_price=known)
            billed[known] = msgspec.structs.replace(one, opened=opened, billed=True)
        await Ledger(pool).insert(list(billed.values()), "g")
        for known, one in billed.items():
            # None: an earlier release's journal, so by the arrival. 0: there was none. Another model's is no price.
            version = {None: second, first: first, second: second}.get(known)
            found = await pool.fetchrow(
                "SELECT price_version, amount_micro FROM gateway.usage_events WHERE request_id = $1",
                one.opened.request_id,
            )
            rate = {first: 1_000_000, second: 2_000_000}.get(version or 0, 0)
            amount = price("small", rate=rate).amount_micro(one.usage)
            assert tuple(found) == (version, amount)


async def test_a_price_is_known_once_it_is_announced(fresh_postgres_url: str) -> None:
    async with lazy_pool(fresh_postgres_url, size=2, connect_timeout_s=5) as pool:
        book = PriceBook(pool, poll_s=3_600)
        keyring = Keyring(fresh_postgres_url, bytes(32), AuthConfig(), also={PRICES_CHANNEL: book.announced})
        await book.start()
        await keyring.start()
        version = await add(pool, price(begin=0))
        await eventually(lambda: book.price("m", 1).version == version)
        await pool.execute("UPDATE gateway.prices SET valid_until = now() + interval '1 hour'")
        await eventually(lambda: book.price("m", 1).valid_until is not None)
        await keyring.stop()
        await book.stop()


async def test_a_book_reads_prices_again_after_a_lost_announcement(fresh_postgres_url: str) -> None:
    async with lazy_pool(fresh_postgres_url, size=2, connect_timeout_s=5) as pool:
        book = PriceBook(pool, poll_s=3_600)
        await book.start()
        await add(pool, price(begin=0))
        keyring = Keyring(fresh_postgres_url, bytes(32), AuthConfig(), also={PRICES_CHANNEL: book.announced})
        await keyring.start()
        await eventually(lambda: book.price("m", 1) is not NO_PRICE)
        await keyring.stop()
        await book.stop()


async def test_a_book_has_what_begins_and_what_has_just_ended(fresh_postgres_url: str) -> None:
    async with lazy_pool(fresh_postgres_url, size=1, connect_timeout_s=5) as pool:
        now_s = time.time()
        for begin, end in ((0, now_s - 40 * DAY_S), (now_s - 40 * DAY_S, now_s - 1), (now_s - 1, now_s + 9)):
            await add(pool, price(begin=begin, end=end))
        await add(pool, price(begin=now_s + 9))
        book = PriceBook(pool)
        await book.start()
        await book.stop()
        at = (now_s - 50 * DAY_S, now_s - 2, now_s, now_s + 10)
        assert [book.price("m", moment_s) is not NO_PRICE for moment_s in at] == [False, True, True, True]


async def test_a_book_keeps_its_prices_while_the_database_is_away(
    fresh_postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        lazy_pool(fresh_postgres_url, size=1, connect_timeout_s=5) as pool,
        lazy_pool(as_owner(fresh_postgres_url), size=1, connect_timeout_s=5) as owner,
    ):
        await add(pool, price(begin=0))
        book = PriceBook(pool, poll_s=0.01)
        await book.start()
        version = book.price("m", 1).version
        await owner.execute("ALTER TABLE gateway.prices RENAME TO away")
        await eventually(lambda: "the last known stay in force" in caplog.text)
        assert book.price("m", 1).version == version != 0
        await owner.execute("ALTER TABLE gateway.away RENAME TO prices")
        await add(pool, price("new", begin=0))
        await eventually(lambda: book.price("new", 1) is not NO_PRICE)
        await book.stop()
