"""URLs, and connecting to a PostgreSQL that is there, not there yet, or refuses."""

from __future__ import annotations

import asyncio

import pytest

from contracts.errors import ConfigError
from storage.engine import borrow, checked, connect, lazy_pool, redacted, sqlalchemy_url
from storage.valkey import Address


def test_sqlalchemy_url_keeps_socket_folder_and_credentials() -> None:
    socket = "postgresql://slipstream@/slipstream?host=/a/run"
    assert sqlalchemy_url(socket) == "postgresql+psycopg://slipstream@/slipstream?host=/a/run"
    assert sqlalchemy_url("postgres://u:p%40ss@h:6432/db") == "postgresql+psycopg://u:p%40ss@h:6432/db"


@pytest.mark.parametrize("url", ["", "mysql://u@h/db", "redis://h", "/a/run", "postgresql://u@h", "postgresql://u@h/"])
def test_what_names_no_postgresql_database_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="database url"):
        checked(url)


def test_passwords_are_never_shown() -> None:
    url = "postgresql://user:hunter2@db.example.com:5432/slipstream?sslmode=require"
    assert redacted(url) == "postgresql://user:***@db.example.com:5432/slipstream?sslmode=require"
    assert redacted("postgresql://user@/slipstream?host=/run") == "postgresql://user@/slipstream?host=/run"
    assert redacted("postgresql://user@server:hunter2@h/db") == "postgresql://user@server:***@h/db", "Azure's users"
    assert redacted("postgresql://us/er:hunter2@h/db") == "postgresql://us/er:***@h/db"
    for url in (
        "mysql://user:hunter2@host/db",
        "postgresql://user:x#hunter2@host/db",
        "postgresql://user@/?host=/run&password=hunter2",
    ):
        with pytest.raises(ConfigError) as caught:
            checked(url)
        assert "hunter2" not in caught.value.message


@pytest.mark.parametrize("password", ["a/b", "a[b", "a]b", "a[b]c", "a#b", "a?b"])
def test_a_password_that_ends_an_address_too_early_is_refused_in_words(password: str) -> None:
    """Fault: every command ended in a traceback, or named a URL without a database with the password in it."""
    with pytest.raises(ConfigError, match=r"'postgresql://u:\*\*\*@h/db'"):
        checked(f"postgresql://u:{password}@h/db")


@pytest.mark.parametrize("password", ["a/hunter2", "a[hunter2", "a]hunter2", "a#hunter2", "a?hunter2"])
def test_a_password_that_ends_valkeys_address_too_early_is_refused_in_words(password: str) -> None:
    """Fault: the passwords that clouds make have slashes, and every command and process ended in a traceback."""
    with pytest.raises(ConfigError, match=r"^local\.valkey_url: 'redis://…@h:6379/0' .* write / as %2F"):
        Address(f"redis://:{password}@h:6379/0")


@pytest.mark.parametrize(
    "url",
    ["postgresql://u:p@h1:5432,h2:6432/db", "postgresql://u@[::1]:5432/db", "postgresql:///db?host=/run&user=a@b"],
)
def test_several_hosts_and_ipv6_are_taken(url: str) -> None:
    assert checked(url) == url


async def test_a_borrowed_connection_is_replaced_after_a_failure_and_kept_after_success(postgres_url: str) -> None:
    pool = await lazy_pool(postgres_url, size=1, connect_timeout_s=5)

    async def backend() -> int:
        async with borrow(pool) as connection:
            return int(await connection.fetchval("SELECT pg_backend_pid()"))

    first = await backend()
    assert await backend() == first
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05), borrow(pool) as connection:
            await connection.execute("SELECT pg_sleep(60)")
    assert await backend() != first
    await pool.close()


async def test_connections_say_who_they_are(postgres_url: str) -> None:
    connection = await connect(postgres_url, name="slipstream-test")
    assert await connection.fetchval("SHOW application_name") == "slipstream-test"
    await connection.close()
