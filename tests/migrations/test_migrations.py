"""Migrations on a real PostgreSQL: up, down, up again, all at once, and against the tables that queries use."""

from __future__ import annotations

import threading
from hashlib import sha256
from pathlib import Path

import psycopg
import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.pool import NullPool

from contracts.errors import ConfigError
from migrations import run
from migrations.metadata import metadata
from storage.engine import sqlalchemy_url
from storage.tables.core import SCHEMA
from storage.tables.evals import SCHEMA as EVALS_SCHEMA
from tests.databases import as_owner

CATALOG = r"""
SELECT 'column', table_name || '.' || column_name, concat_ws(' ', data_type, is_nullable, column_default)
  FROM information_schema.columns WHERE table_schema IN ('gateway', 'evals') AND table_name NOT LIKE 'usage\_events\_%'
UNION ALL
SELECT 'constraint', conrelid::regclass || '.' || conname, pg_get_constraintdef(oid)
  FROM pg_constraint
 WHERE connamespace IN (SELECT oid FROM pg_namespace WHERE nspname IN ('gateway', 'evals'))
   AND conrelid::regclass::text NOT LIKE '%usage\_events\_%'
UNION ALL
SELECT 'index', indexname::text, indexdef FROM pg_indexes
 WHERE schemaname IN ('gateway', 'evals') AND tablename NOT LIKE 'usage\_events\_%'
"""
"""Without the partitions of usage_events, which are copies of it."""
ROUTINES = """
SELECT 'function', oid::regprocedure::text, prosecdef || coalesce(pg_get_function_sqlbody(oid), prosrc)
  FROM pg_proc WHERE pronamespace = 'gateway'::regnamespace AND prolang <> 12
UNION ALL
SELECT 'trigger', tgrelid::regclass || '.' || tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
UNION ALL
SELECT 'statistics', stxname::text, pg_get_statisticsobjdef(oid) FROM pg_statistic_ext
"""
RELEASE_0_1_0 = "d366728042bf8e239e85e8c1853920668576e72260a2d93126511ae50f00e798"
"""Of the schema that release 0.1.0 made by 44 migrations, in PostgreSQL 18's words."""


def rows(url: str, query: str) -> set[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return set(connection.execute(query.encode()).fetchall())


def head() -> str | None:
    return ScriptDirectory(str(Path(run.__file__).parent)).get_current_head()


def objects(url: str) -> set[tuple[object, ...]]:
    """Everything in the schema that a downgrade could forget, functions and triggers included."""
    return rows(url, f"{CATALOG} UNION ALL {ROUTINES}")


def test_up_down_and_up_again_leave_the_same_schema(empty_postgres_url: str) -> None:
    url = empty_postgres_url
    assert run.current(url) is None
    run.upgrade(url)
    first = objects(url)
    assert run.current(url) == head()
    assert {row[0] for row in first} == {"column", "constraint", "index", "function", "trigger", "statistics"}

    run.downgrade(url, "base")
    assert run.current(url) is None
    assert rows(url, f"SELECT 1 FROM pg_namespace WHERE nspname IN ('{SCHEMA}', '{EVALS_SCHEMA}')") == set()

    run.upgrade(url)
    assert objects(url) == first


def test_a_database_of_release_0_1_0_is_upgraded_with_its_rows(empty_postgres_url: str) -> None:
    url = empty_postgres_url
    run.upgrade(url, "0044")
    assert sha256(repr(sorted(objects(url))).encode()).hexdigest() == RELEASE_0_1_0
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("INSERT INTO gateway.prices (model, valid_from, input_micro, cached_input_micro,"
                           " cache_write_micro, output_micro) VALUES ('kept', now(), 1, 1, 1, 1)")  # fmt: skip
    run.upgrade(url)
    assert rows(url, "SELECT model, offline_percent FROM gateway.prices") == {("kept", 100)}


def test_upgrading_twice_changes_nothing_and_keeps_rows(fresh_postgres_url: str) -> None:
    url = as_owner(fresh_postgres_url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("INSERT INTO gateway.organizations (name) VALUES ('kept')")
    run.upgrade(url)
    assert rows(url, "SELECT name FROM gateway.organizations") == {("kept",)}


def test_alembic_sees_no_difference_to_the_metadata(fresh_postgres_url: str) -> None:
    url = as_owner(fresh_postgres_url)
    engine = sqlalchemy.create_engine(sqlalchemy_url(url), poolclass=NullPool)
    with engine.connect() as connection:
        options = {
            "include_schemas": True,
            "include_name": lambda name, kind, _: (
                name in (SCHEMA, EVALS_SCHEMA)
                if kind == "schema"
                else kind != "table" or not name.startswith("usage_events_")
            ),
            "compare_server_default": True,
        }
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []


def test_migrated_schema_equals_the_created_one(empty_postgres_url: str, fresh_postgres_url: str) -> None:
    """Compares what Alembic leaves out: CHECK constraints, predicates and methods of indices, names."""
    migrated, created = fresh_postgres_url, empty_postgres_url
    engine = sqlalchemy.create_engine(sqlalchemy_url(created), poolclass=NullPool)
    with engine.begin() as connection:
        for schema in (SCHEMA, EVALS_SCHEMA):
            connection.execute(sqlalchemy.schema.CreateSchema(schema))
        metadata.create_all(connection)
    assert rows(migrated, CATALOG) == rows(created, CATALOG)


def test_migrators_that_start_together_do_not_collide(empty_postgres_url: str) -> None:
    url = empty_postgres_url
    failures: list[BaseException] = []
    barrier = threading.Barrier(4)

    def migrate() -> None:
        barrier.wait(30)
        try:
            run.upgrade(url)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=migrate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert run.current(url) == head()


def test_a_failed_migration_leaves_nothing_behind(empty_postgres_url: str) -> None:
    url = empty_postgres_url
    with psycopg.connect(url, autocommit=True) as connection:
        # The triggers come last: everything before them succeeds, then the step fails.
        connection.execute(
            "CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN "
            "RAISE EXCEPTION 'no triggers today'; END $$"
        )
        connection.execute(
            "CREATE EVENT TRIGGER refuse ON ddl_command_end WHEN TAG IN ('CREATE TRIGGER') EXECUTE FUNCTION refuse()"
        )
    with pytest.raises(sqlalchemy.exc.DBAPIError, match="no triggers today"):
        run.upgrade(url)
    assert run.current(url) is None
    assert rows(url, f"SELECT 1 FROM pg_namespace WHERE nspname = '{SCHEMA}'") == set()


def test_unknown_revision_and_unreachable_database_are_config_errors(empty_postgres_url: str) -> None:
    with pytest.raises(ConfigError, match="no_such_revision"):
        run.upgrade(empty_postgres_url, "no_such_revision")
    with pytest.raises(ConfigError, match="database postgresql://slipstream@/slipstream"):
        run.upgrade("postgresql://slipstream@/slipstream?host=/nonexistent")


def test_ledger_refuses_a_second_billed_attempt(fresh_postgres_url: str) -> None:
    url = as_owner(fresh_postgres_url)
    columns = {
        "request_id": "'req_1'",
        "attempt": "%s",
        "billed": "%s",
        **dict.fromkeys(("organization_id", "project_id", "key_id"), "gen_random_uuid()"),
        **dict.fromkeys(("model", "endpoint", "gateway_id"), "'x'"),
        **dict.fromkeys(("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens"), "1"),
        **dict.fromkeys(("requested_at", "opened_at", "closed_at"), "now()"),
        "tier": "'chat'",
        "stream": "true",
        "outcome": "'exact'",
        "finish": "'complete'",
        "phases_ms": "'{}'",
    }
    insert = f"INSERT INTO gateway.usage_events ({', '.join(columns)}) VALUES ({', '.join(columns.values())})".encode()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(insert, (1, False))
        connection.execute(insert, (2, True))
        with pytest.raises(psycopg.errors.UniqueViolation, match="usage_events_last_request_id_idx"):
            connection.execute(insert, (3, True))
        with pytest.raises(psycopg.errors.UniqueViolation, match="usage_events_last_pkey"):
            connection.execute(insert, (1, False))
