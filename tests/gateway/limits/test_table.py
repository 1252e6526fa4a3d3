"""The table of limits and the limiter agree about what a limit may be."""

from __future__ import annotations

from uuid import uuid4

import asyncpg
import pytest

from control.tenants import limit_store
from gateway.limits.levels import MAX_MICRO, MAX_PER_DAY, MAX_PER_MINUTE, Level, Limits


async def test_the_table_holds_exactly_the_limits_the_limiter_takes(fresh_postgres_url: str) -> None:
    largest = dict.fromkeys(Limits.__struct_fields__, MAX_PER_MINUTE)
    largest |= {"tokens_per_day": MAX_PER_DAY, "money_micro_per_month": MAX_MICRO}
    limits, key_id = Limits(**largest), uuid4()
    connection = await asyncpg.connect(fresh_postgres_url)
    try:
        await limit_store.put_rule(connection, Level.KEY, key_id, None, limits)
        assert [rule.limits for rule in await limit_store.rules_of(connection, Level.KEY, key_id)] == [limits]
        for field, highest in largest.items():
            for outside in (-1 if field == "money_micro_per_month" else 0, highest + 1):
                with pytest.raises(asyncpg.CheckViolationError, match=field):
                    await connection.execute(f"UPDATE gateway.limits SET {field} = {outside}")
    finally:
        await connection.close()


async def test_a_rule_that_is_set_again_is_as_old_as_before_unless_its_budget_was_lifted(
    fresh_postgres_url: str,
) -> None:
    connection = await asyncpg.connect(fresh_postgres_url)
    subject = Level.KEY, uuid4(), None

    async def aged_ms() -> int:
        """When the rule was created, which is an hour earlier from now on."""
        await connection.execute("UPDATE gateway.limits SET created_at = created_at - interval '1 hour'")
        [rule] = await limit_store.rules_of(connection, *subject[:2])
        return rule.created_ms

    async def put(limits: Limits) -> None:
        await limit_store.put_rule(connection, *subject, limits)

    budget, hour_ms = Limits(money_micro_per_month=1), 3_600_000
    try:
        await put(budget)
        first_ms = await aged_ms()
        await put(Limits(money_micro_per_month=2))
        assert await aged_ms() == first_ms - hour_ms
        for without in (Limits(), Limits(max_prompt_tokens=9)):  # the latter counts nothing, either
            await put(without)
            await put(budget)
            assert await aged_ms() >= first_ms
    finally:
        await connection.close()
