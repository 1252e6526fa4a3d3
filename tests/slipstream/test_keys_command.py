"""`slipstream keys` against a real database, and what a keyring then thinks of the keys."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from contracts.errors import RevokedKey
from gateway.auth.config import AuthConfig
from gateway.auth.keyring import Keyring
from gateway.auth.keys import hash_of
from gateway.auth.scopes import Scope
from gateway.limits.levels import Limits
from infra.local.folders import DataFolder
from infra.local.private import secret_text
from tests.slipstream.shell import Shell
from tests.waiting import eventually

LIVE = "SELECT count(*) FROM gateway.api_keys WHERE revoked_at IS NULL"
HASH = "SELECT hash, revoked_at FROM gateway.api_keys WHERE name = $1"


@pytest.fixture
def pepper(shell: Shell, data_folder: Path) -> bytes:
    return secret_text(DataFolder(data_folder).pepper_file).encode()


async def test_a_created_key_opens_the_door_with_its_limits_until_it_is_revoked(
    shell: Shell, pepper: bytes, connection: asyncpg.Connection[Any], fresh_postgres_url: str
) -> None:
    said = await shell.must(
        "keys", "create", "--create-missing", "--name", "laptop", "--requests-per-minute", "60",
        "--max-concurrency", "2", "--expires-days", "1", "--scope", "completions", "--scope", "models",
    )  # fmt: skip
    secret = said.splitlines()[-1]
    row = await connection.fetchrow("SELECT * FROM gateway.api_keys")
    assert row is not None
    assert row["hash"] == hash_of(secret, pepper)
    assert secret not in str(dict(row))
    keyring = Keyring(fresh_postgres_url, pepper, AuthConfig())
    await keyring.start()
    try:
        record = await keyring.identify(secret)
        assert record.caller.key_id == str(row["id"])
        assert record.scopes == frozenset({Scope.COMPLETIONS, Scope.MODELS})
        assert [rule.limits for rule in record.levels.rules] == [Limits(requests_per_minute=60, max_concurrency=2)]
        assert record.expires_at == pytest.approx(row["expires_at"].timestamp(), abs=1e-6)
        await shell.must("keys", "revoke", "laptop")
        await eventually(lambda: not keyring.cached(secret))
        with pytest.raises(RevokedKey):
            await keyring.identify(secret)
    finally:
        await keyring.stop()


async def test_keys_are_listed_with_their_state_for_all_or_one_organization(
    shell: Shell, connection: asyncpg.Connection[Any]
) -> None:
    await shell.must(
        "keys", "create", "--create-missing", "--organization", "acme", "--name", "first", "--tokens-per-minute", "5000"
    )
    await shell.must(
        "keys", "create", "--create-missing", "--organization", "acme", "--name", "second", "--expires-days", "1",
        "--scope", "completions", "--scope", "models",
    )  # fmt: skip
    await shell.must("keys", "create", "--create-missing", "--organization", "other", "--name", "third")
    await shell.must("keys", "revoke", "first")
    _, *lines = (await shell.must("keys", "list")).splitlines()
    assert [line.split()[2:6] for line in lines] == [
        ["revoked", "acme", "default", "first"],
        ["active", "acme", "default", "second"],
        ["active", "other", "default", "third"],
    ]
    assert lines[0].endswith("5,000 tokens/min")
    assert re.search(r"first +all +", lines[0])
    assert re.search(r"second +completions, models +none$", lines[1])
    await connection.execute("UPDATE gateway.api_keys SET expires_at = now() WHERE name = 'second'")
    acme = await connection.fetchval("SELECT id::text FROM gateway.organizations WHERE name = 'acme'")
    for which in ("acme", acme):
        _, *lines = (await shell.must("keys", "list", "--organization", which)).splitlines()
        assert [line.split()[2] for line in lines] == ["revoked", "expired"]
    assert (await shell.run("keys", "list", "--organization", "nobody"))[0] == 1


async def test_a_key_is_rotated_and_revoked_by_id_display_or_name(
    shell: Shell, pepper: bytes, connection: asyncpg.Connection[Any]
) -> None:
    await shell.must("keys", "create", "--create-missing", "--name", "other")
    other = await connection.fetchval("SELECT id FROM gateway.api_keys")

    async def named(name: str, by: str) -> str:
        word: str = await connection.fetchval(f"SELECT {by}::text FROM gateway.api_keys WHERE name = $1", name)
        if by != "name":  # owners choose names
            await connection.execute("UPDATE gateway.api_keys SET name = $1 WHERE id = $2", word, other)
        return word

    for by in ("id", "display", "name"):
        name = f"mine-{by}"
        await shell.must("keys", "create", "--name", name)
        note, _, secret = (await shell.must("keys", "rotate", await named(name, by))).partition("\n")
        until = r"[-0-9]{10} [:0-9]{8} UTC"
        assert re.fullmatch(rf"the old secret works until {until}; --overlap-hours 0 ends it at once", note)
        assert await connection.fetchval(HASH, name) == hash_of(secret, pepper)
        word = await named(name, by)
        assert name in await shell.must("keys", "revoke", word)
        revoked = await connection.fetchrow(HASH, name)
        await shell.must("keys", "revoke", word)  # again: the first time stands
        assert await connection.fetchrow(HASH, name) == revoked
        assert await connection.fetchval(LIVE) == 1
    code, said = await shell.run("keys", "rotate", "nobody")
    assert (code, "'nobody'" in said) == (1, True)


async def test_an_ambiguous_name_revokes_nothing_until_one_is_left(
    shell: Shell, connection: asyncpg.Connection[Any]
) -> None:
    for _ in range(2):
        await shell.must("keys", "create", "--create-missing", "--name", "twin")
    twins = [row[0] for row in await connection.fetch("SELECT id::text FROM gateway.api_keys ORDER BY created_at")]
    code, said = await shell.run("keys", "revoke", "twin")
    assert (code, await connection.fetchval(LIVE)) == (1, 2)
    assert "2 keys have the name 'twin'" in said
    assert all(twin in said for twin in twins)
    await shell.must("keys", "revoke", twins[0])
    await shell.must("keys", "revoke", "twin")
    assert await connection.fetchval(LIVE) == 0
    code, said = await shell.run("keys", "revoke", "nobody")
    assert (code, "nobody" in said) == (1, True)


async def test_what_the_api_would_refuse_is_refused(shell: Shell, connection: asyncpg.Connection[Any]) -> None:
    for options, said in (
        (("--name", ""), "'name'"),
        (("--name", "x" * 201), "'name'"),
        (("--name", "two\nlines"), "'name'"),
        (("--organization", ""), "'name'"),
        (("--organization", "two\nlines"), "'name'"),
        (("--project", "x" * 201), "'name'"),
        (("--requests-per-minute", "1000000001"), "'requests_per_minute'"),
        (("--max-concurrency", "1000000001"), "'max_concurrency'"),
        (("--tokens-per-minute", str(2**40)), "'tokens_per_minute'"),
        (("--scope", "fim"), "completions"),
    ):
        code, told = await shell.run("keys", "create", "--create-missing", *options)
        assert (code, said in told) == (1, True), told
    assert "scopes" in told
    assert await connection.fetchval("SELECT count(*) FROM gateway.organizations") == 0


async def test_commands_at_once_make_an_organization_and_a_project_once(
    shell: Shell, connection: asyncpg.Connection[Any]
) -> None:
    await asyncio.gather(
        *(shell.must("keys", "create", "--create-missing", "--organization", "acme") for _ in range(4))
    )
    assert await connection.fetchval("SELECT count(*) FROM gateway.organizations") == 1
    assert await connection.fetchval("SELECT count(*) FROM gateway.projects") == 1
    assert await connection.fetchval(LIVE) == 4
    actions = [row[0] for row in await connection.fetch("SELECT action FROM gateway.audit_log")]
    assert sorted(actions) == ["key.create"] * 4 + ["organization.create", "project.create"]


async def test_a_key_is_made_for_who_is_there_and_a_name_that_is_not_is_refused_with_the_nearest(
    shell: Shell, connection: asyncpg.Connection[Any]
) -> None:
    acme = await shell.must("customers", "organizations", "create", "acme")
    make_web = ("customers", "projects", "create", "web", "--organization", "acme", "--tier", "chat")
    await shell.must(*make_web)
    assert await shell.run(*make_web) == (1, "There is already one with this name.")
    assert (await shell.must("keys", "create", "--organization", acme, "--project", "web")).startswith("sk-slip-")
    off_by_one = acme[:-1] + ("0" if acme[-1] != "0" else "1")
    stranger = str(uuid4())
    for options, said in (
        (
            ("--organization", "acmee"),
            "no organization has the id or name 'acmee'; did you mean 'acme'? `slipstream customers organizations list",
        ),
        (("--organization", off_by_one), f"did you mean '{acme}'? "),
        (
            ("--organization", "acme", "--project", "wbe"),
            "acme has no project with the id or name 'wbe'; did you mean 'web'? `",
        ),
        (("--organization", "acme", "--project", "wbe"), "--create-missing creates them"),
        (
            ("--organization", off_by_one, "--create-missing"),
            f"no organization has the id '{off_by_one}', and an id cannot be a name",
        ),
        (("--organization", "acme", "--project", stranger, "--create-missing"), "an id cannot be a name"),
        ((), "no organization has the id or name 'demo'; `slipstream customers organizations list"),
    ):
        code, told = await shell.run("keys", "create", *options)
        assert (code, said in told) == (1, True), told
    assert [row[0] for row in await connection.fetch("SELECT name FROM gateway.organizations")] == ["acme"]
    assert [row[0] for row in await connection.fetch("SELECT name FROM gateway.projects")] == ["web"]
    assert await connection.fetchval(LIVE) == 1


async def test_what_create_missing_makes_is_said_beside_the_key(shell: Shell) -> None:
    made = ("keys", "create", "--create-missing", "--organization", "acme", "--project", "web")
    _, told = await shell.run(*made)
    organization, project, secret = told.splitlines()
    assert organization == "organization 'acme' created, without limits"
    assert project == "project 'web' of 'acme' created, for all models and tiers, without its own limits"
    assert re.fullmatch(r"sk-slip-\w{38}", secret)
    assert re.fullmatch(r"sk-slip-\w{38}", (await shell.run(*made))[1]), "the second time nothing is made"


async def test_a_third_secret_is_refused_in_words_of_the_command_that_then_do(
    shell: Shell, pepper: bytes, connection: asyncpg.Connection[Any]
) -> None:
    await shell.must("keys", "create", "--create-missing", "--name", "mine")
    second = (await shell.must("keys", "rotate", "mine")).rpartition("\n")[2]
    code, said = await shell.run("keys", "rotate", "mine")
    assert code == 1
    assert re.fullmatch(
        r"The secret of sk-slip-…\w+ before its last rotation is still valid until [-0-9]{10} [:0-9]{8} UTC\. "
        r"Wait, or end it now with --end-previous\.",
        said,
    )
    third = (await shell.must("keys", "rotate", "mine", "--end-previous")).rpartition("\n")[2]
    row = await connection.fetchrow("SELECT hash, previous_hash FROM gateway.api_keys")
    assert row is not None
    assert tuple(row) == (hash_of(third, pepper), hash_of(second, pepper))
