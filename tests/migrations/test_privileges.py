"""The application's role: what the product needs, as every other test proves, and nothing to what stands written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg import errors, sql

from contracts.errors import ConfigError
from infra.local.folders import APPLICATION_ROLE
from migrations import run
from tests.databases import as_application, as_owner

DAY = "usage_events_20260301"
APPEND_ONLY = {
    "audit_log": "actor_name", "usage_events": "model", DAY: "model", "usage_events_first": "model",
    "usage_events_last": "model", "usage_retired_days": "rows",
}  # fmt: skip
"""Tables that only grow, each with a column."""
EVENT = """
INSERT INTO gateway.usage_events
       (request_id, attempt, organization_id, project_id, key_id, model, tier, endpoint, stream, prompt_tokens,
        cached_tokens, completion_tokens, reasoning_tokens, outcome, finish, billed, phases_ms, requested_at, opened_at,
        closed_at, gateway_id)
VALUES ('req_019ca8ab6800', 0, gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'm', 'chat', '/v1', true, 1,
        0, 1, 0, 'exact', 'complete', false, '{}', now(), now(), now(), 'g')
"""
ENTRY = """
INSERT INTO gateway.audit_log (actor_kind, actor_name, action, subject_kind, subject_id)
VALUES ('command', 'x', 'a.b', 'a', '1')
"""

Connection = psycopg.Connection[tuple[object, ...]]


@pytest.fixture(scope="module")
def application(module_postgres_url: str) -> Iterator[Connection]:
    """A connection as the application, with a row in the ledger and in the log. What it tries is refused."""
    with psycopg.connect(module_postgres_url, autocommit=True) as connection:
        connection.execute("SELECT gateway.ensure_usage_day('2026-03-01')")
        connection.execute(EVENT)
        connection.execute(ENTRY)
        yield connection


def count(connection: Connection, table: str) -> object:
    row = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier("gateway", table))).fetchone()
    assert row is not None
    return row[0]


@pytest.mark.parametrize("table", APPEND_ONLY)
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE {table} SET {column} = {column}",
        "DELETE FROM {table}",
        "TRUNCATE {table}",
        "DROP TABLE {table}",
        "DROP TABLE {table} CASCADE",
        "ALTER TABLE {table} DISABLE TRIGGER ALL",
        "ALTER TABLE {table} DISABLE TRIGGER USER",
        "ALTER TABLE {table} RENAME TO gone",
        "ALTER TABLE {table} OWNER TO CURRENT_USER",
        "ALTER TABLE {table} SET SCHEMA public",
        "CREATE TRIGGER t BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION gateway.notify_desired()",
        "CREATE RULE r AS ON INSERT TO {table} DO INSTEAD NOTHING",
        "CREATE POLICY p ON {table}",
    ],
)
def test_what_stands_written_cannot_be_touched(application: Connection, statement: str, table: str) -> None:
    text = sql.SQL(statement).format(table=sql.Identifier("gateway", table), column=sql.Identifier(APPEND_ONLY[table]))
    before = [count(application, each) for each in ("audit_log", "usage_events")]
    with pytest.raises(errors.InsufficientPrivilege):
        application.execute(text)
    assert [count(application, each) for each in ("audit_log", "usage_events")] == before
    assert 0 not in before


@pytest.mark.parametrize("table", APPEND_ONLY)
def test_it_can_give_itself_nothing(application: Connection, table: str) -> None:
    with contextlib.suppress(errors.InsufficientPrivilege):  # or PostgreSQL only warns, and grants nothing
        application.execute(sql.SQL("GRANT ALL ON {} TO CURRENT_USER").format(sql.Identifier("gateway", table)))
    with pytest.raises(errors.InsufficientPrivilege):
        application.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier("gateway", table)))


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE gateway.usage_events DETACH PARTITION gateway.usage_events_20260301",
        "ALTER FUNCTION gateway.refuse_change() OWNER TO CURRENT_USER",
        "CREATE OR REPLACE FUNCTION gateway.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN OLD; "
        "END $$",
        "CREATE TABLE gateway.mine ()", "CREATE TABLE public.mine ()", "CREATE SCHEMA mine", "DROP SCHEMA gateway",
        "SET session_replication_role = replica", "SET ROLE slipstream", "SET SESSION AUTHORIZATION slipstream",
        "CREATE ROLE another SUPERUSER", "ALTER ROLE CURRENT_USER SUPERUSER", "COPY (SELECT 1) TO PROGRAM 'true'",
        "INSERT INTO gateway.usage_retired_days (day, rows, amount_micro) VALUES ('2026-03-01', 0, 0)",
        "UPDATE slipstream_version SET version_num = '0001'",
    ],
)  # fmt: skip
def test_no_way_around(application: Connection, statement: str) -> None:
    with pytest.raises(errors.InsufficientPrivilege):
        application.execute(statement.encode())


def test_the_owners_functions_keep_the_least_retention_whatever_they_are_asked(application: Connection) -> None:
    today = datetime.now(UTC).date()
    with pytest.raises(errors.InvalidParameterValue, match="at least 35 days"):
        application.execute("SELECT gateway.retire_usage_day('2026-03-01', 34)")
    young = today - timedelta(days=35)
    application.execute("SELECT gateway.ensure_usage_day(%s)", (young,))
    for day in (young, "2026-03-01"):  # too young; old, but recorded just now
        assert application.execute("SELECT gateway.retire_usage_day(%s, 35)", (day,)).fetchone() == (False,)
    assert count(application, "usage_events") == 1
    # Its own objects do not get in between, whatever the search path says.
    application.execute("CREATE TEMPORARY TABLE pg_class (relname text)")
    application.execute("SET search_path = pg_temp, public")
    assert application.execute("SELECT gateway.retire_usage_day('2026-03-01', 35)").fetchone() == (False,)
    old = today - timedelta(days=36)
    assert application.execute("SELECT gateway.ensure_usage_day(%s)", (old,)).fetchone() == (True,)
    assert application.execute("SELECT gateway.retire_usage_day(%s, 35)", (old,)).fetchone() == (True,)
    application.execute("DISCARD ALL")


def test_others_may_not_call_them(fresh_postgres_url: str) -> None:
    with psycopg.connect(as_owner(fresh_postgres_url), autocommit=True) as owner:
        owner.execute("DO $$ BEGIN CREATE ROLE bystander; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
        owner.execute("GRANT USAGE ON SCHEMA gateway TO bystander")
        owner.execute("SET ROLE bystander")
        for call in ("ensure_usage_day('2026-03-01')", "retire_usage_day('2026-03-01', 35)"):
            with pytest.raises(errors.InsufficientPrivilege):
                owner.execute(f"SELECT gateway.{call}".encode())


def test_a_migration_gives_what_is_missing_and_takes_what_is_too_much(empty_postgres_url: str) -> None:
    url, application = empty_postgres_url, as_application(empty_postgres_url)
    run.upgrade(url)
    with psycopg.connect(application, autocommit=True) as connection:
        with pytest.raises(errors.InsufficientPrivilege):
            connection.execute("SELECT 1 FROM gateway.organizations")
        with psycopg.connect(url, autocommit=True) as owner:
            owner.execute(f"GRANT ALL ON gateway.audit_log TO {APPLICATION_ROLE}".encode())
        run.upgrade(url, application_url=application)
        connection.execute("INSERT INTO gateway.organizations (name) VALUES ('a')")
        with pytest.raises(errors.InsufficientPrivilege):
            connection.execute("DELETE FROM gateway.audit_log")


def test_one_role_for_all_works_as_it_did(empty_postgres_url: str) -> None:
    run.upgrade(empty_postgres_url, application_url=empty_postgres_url)
    with psycopg.connect(empty_postgres_url, autocommit=True) as connection:
        connection.execute("INSERT INTO gateway.organizations (name) VALUES ('a')")


def test_the_application_may_ask_whether_all_is_migrated_and_may_not_migrate(empty_postgres_url: str) -> None:
    url, application = empty_postgres_url, as_application(empty_postgres_url)
    run.upgrade(url, application_url=application)
    run.upgrade(application, application_url=application)  # nothing is left to do
    run.downgrade(url, "0044")
    with pytest.raises(ConfigError, match=r"local\.migration_database_url"):
        run.upgrade(application, application_url=application)
