"""What one look at the tables finds new, by a database's clock that somebody sets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import asyncpg

from contracts.dated_request_id import mint
from control.api.events.look import Look
from control.api.events.topics import News, Topic
from tests.databases import as_owner

WANTED = frozenset({Topic.REQUESTS})
NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


async def test_news_go_on_after_the_clock_of_the_database_was_set_back(fresh_postgres_url: str) -> None:
    connection = await asyncpg.connect(as_owner(fresh_postgres_url))
    try:
        await connection.execute("CREATE SCHEMA clock")
        await connection.execute("SET search_path = clock, pg_catalog, public")
        organization_id = uuid4()
        await connection.execute(
            "INSERT INTO gateway.organizations (id, name) VALUES ($1, $2)", organization_id, organization_id.hex
        )

        async def clock_says(moment: datetime) -> None:
            await connection.execute(
                "CREATE OR REPLACE FUNCTION clock.now() RETURNS timestamptz LANGUAGE sql STABLE AS"
                f" $$ SELECT '{moment.isoformat()}'::timestamptz $$"
            )

        async def request_at(moment: datetime) -> None:
            await connection.execute(
                "INSERT INTO gateway.request_traces (request_id, organization_id, recorded_at, status, total_ms,"
                " phases_ms) VALUES ($1, $2, $3, 200, 1, '{}')",
                mint(),
                organization_id,
                moment,
            )

        ours = News(Topic.REQUESTS, organization_id)
        look = Look(list)
        await clock_says(NOON)
        assert await look.news(connection, WANTED) == set()
        await request_at(NOON)
        assert ours in await look.news(connection, WANTED)
        for back in (timedelta(seconds=40), timedelta(hours=3)):
            await clock_says(NOON - back)
            await look.news(connection, WANTED)
            await request_at(NOON - back)
            assert ours in await look.news(connection, WANTED), back
            assert await look.news(connection, WANTED) == set(), back
    finally:
        await connection.close()
