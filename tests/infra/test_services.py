"""The embedded servers answer on private sockets and keep what was committed."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import asyncpg
import pytest
import redis.asyncio as redis

from contracts.errors import ConfigError
from infra.local.config import LocalConfig
from infra.local.folders import DataFolder
from infra.local.postgres import NICE, Postgres
from tests.small_disk import Kind, small_disk


async def test_postgres_is_18_and_not_on_the_network(postgres_url: str, postgres_server: Path) -> None:
    connection = await asyncpg.connect(postgres_url)
    try:
        assert (await connection.fetchval("show server_version")).startswith("18")
        assert await connection.fetchval("show listen_addresses") == ""
    finally:
        await connection.close()


async def test_postgres_yields_to_gateways_and_not_to_engines(postgres_url: str) -> None:
    """Fault: two long reports kept two cores of PostgreSQL busy at the gateways' priority."""
    connection = await asyncpg.connect(postgres_url)
    try:
        backend = await connection.fetchval("select pg_backend_pid()")
        ours = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, backend) == min(ours + NICE, 19)
        assert 0 < NICE < LocalConfig().engine_nice
    finally:
        await connection.close()


def test_sockets_lie_in_a_private_folder(postgres_server: Path) -> None:
    assert stat.S_IMODE(postgres_server.stat().st_mode) == 0o700


@pytest.mark.parametrize("kind", ["ext4", "tmpfs"])
def test_a_database_that_cannot_be_made_says_what_initdb_said(kind: Kind) -> None:
    with small_disk(kind, 20_000_000) as disk:
        data = DataFolder(disk.path / "data")
        data.prepare()
        with pytest.raises(ConfigError) as refused:
            Postgres(data, LocalConfig()).prepare()
    said = refused.value.message
    refusal = rf"{data.postgres}: the database could not be made \([\d.]+ MB free\); initdb said: "
    assert re.fullmatch(refusal + ".*No space left on device.*", said)


def test_programs_that_cannot_be_started_are_refused_in_one_sentence(data_folder: Path) -> None:
    data = DataFolder(data_folder)
    data.prepare()
    postgres = Postgres(data, LocalConfig())
    postgres._binaries = data_folder / "absent"
    with pytest.raises(
        ConfigError, match=r"absent/initdb: cannot be started.*: (no such file|permission denied).* local\.database_url"
    ):
        postgres.prepare()


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
