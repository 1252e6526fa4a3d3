"""The commands that administer, against a real database: the API's own rules, and an audit row by each."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import asyncpg
import pytest
from click.testing import CliRunner

from contracts.errors import SlipstreamError
from gateway.admin.audit_chain import verify
from gateway.admin.principal import authenticate
from infra.local.config import LocalConfig
from infra.local.folders import DataFolder
from slipstream.__main__ import cli
from slipstream.first_key import make_first_key
from slipstream.settings import Settings


class Shell:
    """Runs `slipstream` commands on one database, each on a thread of its own: they bring their own event loop."""

    def __init__(self, url: str, data: Path) -> None:
        self._environment = {"SLIPSTREAM_LOCAL__DATABASE_URL": url}
        self._data = data

    async def run(self, *arguments: str) -> tuple[int, str]:
        result = await asyncio.to_thread(
            CliRunner().invoke, cli, [*arguments, "--data", str(self._data)], env=self._environment
        )
        if isinstance(result.exception, SlipstreamError):
            return 1, result.exception.message
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.output.strip()

    async def must(self, *arguments: str) -> str:
        code, output = await self.run(*arguments)
        assert code == 0, output
        return output


@pytest.fixture
def shell(fresh_postgres_url: str, data_folder: Path) -> Shell:
    DataFolder(data_folder).prepare()
    return Shell(fresh_postgres_url, data_folder)


async def test_a_first_start_makes_one_owner_and_says_so_in_the_log(fresh_postgres_url: str, data_folder: Path) -> None:
    DataFolder(data_folder).prepare()
    local = LocalConfig(data=str(data_folder), database_url=fresh_postgres_url)
    settings = Settings(local=local)
    made = await asyncio.gather(*(make_first_key(settings) for _ in range(3)))  # starters that race
    (secret,) = [each.secret for each in made if each.secret is not None]
    (admin,) = [each.admin_secret for each in made if each.admin_secret is not None]
    assert admin.startswith("sk-slip-admin-")
    connection = await asyncpg.connect(fresh_postgres_url)
    try:
        rows = await connection.fetch("SELECT action, actor_kind, after FROM gateway.audit_log ORDER BY id")
        assert sorted(row["action"] for row in rows) == ["key.create", "member.create"]
        assert {row["actor_kind"] for row in rows} == {"command"}
        assert not [row for row in rows if secret in row["after"] or admin in row["after"]]
        assert (await verify(connection)).problem is None
        assert (await authenticate(connection, admin, settings.pepper)).operator
    finally:
        await connection.close()


async def test_a_deployment_is_administered_from_the_command_line(shell: Shell, fresh_postgres_url: str) -> None:
    first = await shell.must("admin-keys", "create")
    acme = await shell.must("organizations", "create", "acme")
    assert re.fullmatch(r"sk-slip-admin-[0-9A-Za-z]{38}", first)
    project = await shell.must("projects", "create", "web", "--organization", "acme", "--tier", "chat")
    member = await shell.must("members", "add", "ann@example.com", "--organization", "acme", "--role", "admin")
    key = await shell.must("keys", "create", "--organization", "acme", "--project", "web", "--name", "ci")
    assert "acme" in await shell.must("organizations", "list")
    projects = await shell.must("projects", "list", "--organization", acme)
    members = await shell.must("members", "list", "--organization", "acme")
    refused = await shell.run("projects", "update", "web", "--organization", "acme", "--model", "nothing")
    assert re.search(rf"{project} +active +web +chat +all", projects)
    assert re.search(rf"{member} +active +admin +ann@example.com", members)
    assert refused[0] == 1
    assert "this deployment has no model 'nothing'" in refused[1]
    connection = await asyncpg.connect(fresh_postgres_url)
    try:
        key_id = await connection.fetchval("SELECT id::text FROM gateway.api_keys")
        rotated = await shell.must("keys", "rotate", key_id, "--overlap-hours", "1")
        assert rotated != key
        await shell.must("projects", "update", "web", "--organization", "acme", "--disable")
        await shell.must("keys", "revoke", key_id)
        actions = [row[0] for row in await connection.fetch("SELECT action FROM gateway.audit_log ORDER BY id")]
        assert sorted(actions) == sorted(
            ["member.create", "admin_key.create", "organization.create", "project.create", "member.create",
             "key.create", "key.rotate", "project.update", "key.revoke"]
        )  # fmt: skip
        whole = await shell.must("audit", "verify")
        head = whole.rpartition("head ")[2]
        assert whole.startswith("whole: 9 rows")
        assert (await verify(connection)).problem is None
        await connection.execute("ALTER TABLE gateway.audit_log DISABLE TRIGGER USER")
        await connection.execute("DELETE FROM gateway.audit_log WHERE id = 9")
        cut = await shell.run("audit", "verify", "--head", head)
        assert cut[0] == 1
        assert "broken: row 9 is missing" in cut[1]
        await connection.execute("UPDATE gateway.audit_log SET actor_name = 'x' WHERE id = 5")
        assert "row 5 was altered" in (await shell.run("audit", "verify"))[1]
    finally:
        await connection.close()
