"""The short look whether a database is at the newest revision, which a start takes in place of Alembic."""

from __future__ import annotations

import subprocess
import sys

import psycopg
import pytest
from psycopg import sql

from contracts.errors import ConfigError
from migrations import revision, run
from tests.databases import as_application
from tests.migrations.test_migrations import head

VERSION = sql.Identifier(revision.VERSION_TABLE)


def test_the_newest_file_is_alembics_head() -> None:
    assert revision.newest() == head()


async def test_only_a_database_at_the_newest_revision_has_nothing_to_migrate(empty_postgres_url: str) -> None:
    url = empty_postgres_url
    assert not await revision.is_newest(url, as_application(url))
    run.upgrade(url, "0044")
    assert not await revision.is_newest(url, as_application(url))
    run.upgrade(url)
    assert await revision.is_newest(url, as_application(url))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("UPDATE {} SET version_num = '9999'").format(VERSION))  # of a later release
        assert not await revision.is_newest(url, as_application(url))
        connection.execute(sql.SQL("DELETE FROM {}").format(VERSION))
    assert not await revision.is_newest(url, as_application(url))


def test_a_stamp_that_was_changed_by_hand_is_one_sentence(empty_postgres_url: str) -> None:
    run.upgrade(empty_postgres_url)
    for stamps, said in (
        (("0050", "0051"), "must hold one revision, and holds '0050', '0051'"),
        (("",), "must hold one revision, and holds ''"),
        ((), "already exists; the tables are not those of revision none"),
        (("0043",), "at revision 0043.*of release 0.1.0 first"),
        (("9999",), "at revision 9999.*run the release that"),
    ):
        with psycopg.connect(empty_postgres_url, autocommit=True) as connection:
            connection.execute(sql.SQL("DELETE FROM {}").format(VERSION))
            for stamp in stamps:
                connection.execute(sql.SQL("INSERT INTO {} VALUES (%s)").format(VERSION), (stamp,))
        with pytest.raises(ConfigError, match=said):
            run.upgrade(empty_postgres_url)
    assert run.current(empty_postgres_url) == "9999"


async def test_it_gives_the_application_what_it_needs(empty_postgres_url: str) -> None:
    url = empty_postgres_url
    run.upgrade(url)
    with psycopg.connect(as_application(url), autocommit=True) as application:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            application.execute("SELECT FROM gateway.organizations")
        assert await revision.is_newest(url, as_application(url))
        application.execute("SELECT FROM gateway.organizations")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            application.execute("DELETE FROM gateway.audit_log")


async def test_a_role_of_any_name_is_named_when_it_is_not_there(empty_postgres_url: str) -> None:
    url = empty_postgres_url
    with pytest.raises(ConfigError, match="CREATE ROLE nobody_yet LOGIN"):
        run.upgrade(url, application_url=url.replace("slipstream@", "nobody_yet@"))
    assert run.current(url) is None, "before anything is changed"
    run.upgrade(url)
    for name in ("nobody", "it's", "$$%I"):
        with pytest.raises(ConfigError, match="has no role"):
            await revision.is_newest(url, url.replace("slipstream@", f"{name}@"))
        with pytest.raises(ConfigError, match="has no role"):
            run.upgrade(url, application_url=url.replace("slipstream@", f"{name}@"))


async def test_a_database_out_of_reach_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="database postgresql://"):
        await revision.is_newest("postgresql://slipstream@127.0.0.1:1/nowhere", "postgresql://a@127.0.0.1:1/nowhere")


def test_the_look_imports_neither_alembic_nor_sqlalchemy() -> None:
    code = (
        "import sys, migrations.revision; print([m for m in ('alembic', 'sqlalchemy', 'psycopg') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
