"""The embedded servers answer on private sockets and keep what was committed."""

from __future__ import annotations

import stat
from pathlib import Path

import asyncpg
import redis.asyncio as redis


async def test_postgres_is_18_and_not_on_the_network(postgres_url: str, postgres_server: Path) -> None:
    connection = await asyncpg.connect(postgres_url)
    try:
        assert (await connection.fetchval("show server_version")).startswith("18")
        assert await connection.fetchval("show listen_addresses") == ""
    finally:
        await connection.close()


def test_sockets_lie_in_a_private_folder(postgres_server: Path) -> None:
    assert stat.S_IMODE(postgres_server.stat().st_mode) == 0o700


async def test_databases_of_tests_are_apart(empty_postgres_url: str, fresh_postgres_url: str) -> None:
    assert empty_postgres_url != fresh_postgres_url
    connection = await asyncpg.connect(empty_postgres_url)
    try:
        assert await connection.fetchval("select count(*) from pg_tables where schemaname = 'gateway'") == 0
    finally:
        await connection.close()


async def test_valkey_answers_on_its_socket_only(valkey_url: str) -> None:
    client = redis.from_url(valkey_url)
    try:
        assert await client.ping()
        assert (await client.config_get("port"))["port"] == "0"
        assert (await client.config_get("appendonly"))["appendonly"] == "yes"
    finally:
        await client.aclose()
