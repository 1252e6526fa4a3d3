"""Expensive reads of a tenant never take the admin API from everybody: each waits here for a table that is locked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import msgspec
import pytest

from contracts.errors import RateLimited, ServiceError
from control.api import api
from control.api.api import AdminAnswer, AdminApi, AdminRequest
from control.api.config import AdminConfig
from control.api.operation import IN_QUERY
from control.api.read_places import ReadPlaces
from control.diagnosis import diagnosis
from control.diagnosis.findings.evidence import Window
from control.diagnosis.window import read_window
from control.operations import OPERATIONS
from gateway.serving.model_catalog import ModelCatalog
from storage.roles import Role
from tests.control.api.people import Client, People
from tests.waiting import GUARD_S, eventually

BY_NAME = {operation.name: operation for operation in OPERATIONS}
ATTEMPTS = 8
REPORT_S = 1.6


class Gateway:
    """An admin API without HTTP in front of it."""

    def __init__(self, url: str, people: People, config: AdminConfig) -> None:
        self.catalog = ModelCatalog()
        self.api = AdminApi(url, people.pepper, config, self.catalog)

    async def ask(self, name: str, client: Client, body: object = None, **path: UUID) -> AdminAnswer:
        operation = BY_NAME[name]
        fields = operation.query.__struct_fields__ if operation.query else ()
        arguments = {**path, "data": body, **{IN_QUERY + field: None for field in fields}}
        principal = await self.api.admit(operation, client.secret)
        return await self.api.run(
            operation,
            AdminRequest(
                request_id="req_x", principal=principal, url="/", body=b"", idempotency_key=None, arguments=arguments
            ),
        )


@asynccontextmanager
async def gateway(url: str, people: People, config: AdminConfig) -> AsyncIterator[Gateway]:
    running = Gateway(url, people, config)
    await running.api.start()
    try:
        yield running
    finally:
        await running.api.stop()
        running.catalog.close()


@asynccontextmanager
async def locked(url: str, table: str) -> AsyncIterator[None]:
    locker = await asyncpg.connect(url)
    try:
        async with locker.transaction():
            await locker.execute(f"LOCK TABLE gateway.{table} IN ACCESS EXCLUSIVE MODE")
            yield
    finally:
        await locker.close()


def short_reports(monkeypatch: pytest.MonkeyPatch) -> AdminConfig:
    """A report ends after REPORT_S, and no request does soon: the end of a report takes its time on a busy machine."""
    monkeypatch.setattr(api, "REPORT_SHARE", REPORT_S / GUARD_S)
    return AdminConfig(connections=1, timeout_s=GUARD_S)


async def waiting_for_locks(connection: asyncpg.Connection[Any]) -> int:
    """How many statements wait for a lock in the connection's database."""
    waiting: int = await connection.fetchval(
        "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database"
        " WHERE datname = current_database() AND NOT granted"
    )
    return waiting


async def test_a_viewers_reports_leave_connections_for_everybody_else(people: People, admin_postgres_url: str) -> None:
    ours, theirs = people.organizations["ours"], people.organizations["theirs"]
    viewer, other = await people.as_(Role.VIEWER), await people.as_(Role.VIEWER, "theirs")
    operator = await people.operator()
    four = AdminConfig(connections=4, timeout_s=GUARD_S)
    async with gateway(admin_postgres_url, people, four) as asked, locked(admin_postgres_url, "prefix_shares"):
        reports = [
            asyncio.create_task(asked.ask("list_prefix_shares", viewer, organization_id=ours)) for _ in range(ATTEMPTS)
        ]
        while sum(report.done() for report in reports) < ATTEMPTS - 2:
            await asyncio.wait([each for each in reports if not each.done()], return_when=asyncio.FIRST_COMPLETED)
        for error in (report.exception() for report in reports if report.done()):
            assert isinstance(error, RateLimited)
            assert "2 reports" in str(error)
            assert error.retry_after_s
        listed = await asked.ask("list_organizations", operator)
        assert msgspec.json.decode(listed.body)["data"]
        more = [asyncio.create_task(asked.ask("list_prefix_shares", other, organization_id=theirs)) for _ in range(2)]
        await asyncio.wait(more, return_when=asyncio.FIRST_COMPLETED)
        busy = next(report.exception() for report in more if report.done())
        assert isinstance(busy, ServiceError)
        assert "busy with other reports" in str(busy)
        assert (await asked.ask("list_organizations", operator)).status == 200
        running = [report for report in (*reports, *more) if not report.done()]
        assert len(running) == 3
        for report in running:
            report.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    async with gateway(admin_postgres_url, people, AdminConfig()) as asked:
        assert (await asked.ask("list_prefix_shares", viewer, organization_id=ours)).status == 200


async def test_postgresql_stops_a_report_that_takes_too_long(
    people: People, admin_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    viewer, ours = await people.as_(Role.VIEWER), people.organizations["ours"]
    async with gateway(admin_postgres_url, people, short_reports(monkeypatch)) as asked:
        async with locked(admin_postgres_url, "prefix_shares"):
            with pytest.raises(ServiceError, match=r"longer than 1\.6 s; choose a shorter period"):
                await asked.ask("list_prefix_shares", viewer, organization_id=ours)
        assert (await asked.ask("list_prefix_shares", viewer, organization_id=ours)).status == 200


async def test_a_request_ends_in_time_although_its_cancellation_is_lost(
    people: People, admin_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: PostgreSQL ignores a cancellation that comes before its statement, and the request waited for the lock."""

    async def lost(**_: Any) -> None:
        return None

    monkeypatch.setattr(asyncpg.connect_utils, "_cancel", lost)
    owner, ours = await people.as_(Role.OWNER), people.organizations["ours"]
    hasty = AdminConfig(connections=1, timeout_s=1.0)
    async with gateway(admin_postgres_url, people, hasty) as asked:
        async with locked(admin_postgres_url, "projects"):
            with pytest.raises(ServiceError, match="cannot be reached"):
                async with asyncio.timeout(GUARD_S):
                    await asked.ask("list_projects", owner, organization_id=ours)
        asked.api._config = msgspec.structs.replace(hasty, timeout_s=GUARD_S)  # it reconnects
        assert (await asked.ask("list_projects", owner, organization_id=ours)).status == 200


@pytest.mark.parametrize("late", ["start", "before_start"])
async def test_a_diagnosis_that_takes_too_long_says_which_window_to_narrow(
    late: str, people: People, admin_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: statement after statement within its time, and at last a database that cannot be reached."""
    windows = []

    async def slow(connection: asyncpg.Connection[Any], *which: Any) -> Window:
        windows.append(which)
        if len(windows) == ("start", "before_start").index(late) + 1:
            for _ in range(100):
                await connection.execute("SELECT pg_sleep(0.6)")
        return await read_window(connection, *which)

    monkeypatch.setattr(diagnosis, "read_window", slow)
    viewer, ours = await people.as_(Role.VIEWER), people.organizations["ours"]
    async with gateway(admin_postgres_url, people, short_reports(monkeypatch)) as asked:
        with pytest.raises(ServiceError, match=rf"longer than 1\.6 s; choose a shorter window with '{late}'.*1 hours"):
            await asked.ask("get_diagnosis", viewer, organization_id=ours)
        assert (await asked.ask("get_me", viewer)).status == 200  # the connection is whole


async def test_no_connection_free_is_not_the_database_away(people: People, admin_postgres_url: str) -> None:
    operator = await people.operator()
    patient = AdminConfig(connections=1, timeout_s=GUARD_S)
    async with gateway(admin_postgres_url, people, patient) as asked:
        await asked.ask("list_organizations", operator)  # the pool has its connection
        async with locked(admin_postgres_url, "admin_keys"):
            holder = asyncio.create_task(asked.ask("list_organizations", operator))
            await eventually(lambda: waiting_for_locks(people.database))  # it has the connection
            asked.api._config = msgspec.structs.replace(patient, timeout_s=1.0)
            with pytest.raises(ServiceError, match=r"^The admin API is busy; try again\.$"):
                await asked.ask("list_organizations", operator)
            assert not holder.done()
            holder.cancel()
            await asyncio.gather(holder, return_exceptions=True)
            with pytest.raises(ServiceError, match=r"^The database cannot be reached at the moment; try again\.$"):
                await asked.ask("list_organizations", operator)


async def test_places_are_given_back_and_operators_need_none(people: People, admin_postgres_url: str) -> None:
    async with gateway(admin_postgres_url, people, AdminConfig()) as asked:
        principal = await asked.api.admit(BY_NAME["list_prefix_shares"], (await people.as_(Role.VIEWER)).secret)
    operator = msgspec.structs.replace(principal, organization_id=uuid4(), operator=True)
    places = ReadPlaces(connections=1, each=2)
    for _ in range(3):
        with (
            places.place(principal),
            places.place(operator),
            places.place(operator),
            pytest.raises(RateLimited),
            places.place(principal),
        ):
            pytest.fail("it has one already")
