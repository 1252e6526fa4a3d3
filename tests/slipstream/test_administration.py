"""The commands that administer, against a real database: the API's own rules, and an audit row by each."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from contracts.desired_state import DesiredState, Model, Pool, Replica
from contracts.errors import ServiceError
from contracts.generation import Tier
from control.api.call import AdminCall
from control.api.principal import authenticate
from control.audit.chain import OWNED, verify
from control.audit.heads import FILE
from control.fleet import edits, fleet_edit
from gateway.auth.keys import hash_of
from infra.local.config import LocalConfig
from infra.local.folders import DataFolder
from migrations.revision import VERSION_TABLE, newest
from slipstream.administration import administration
from slipstream.database import connected, fleet_warning, ownership_warning
from slipstream.doctor import Outcome, _database
from slipstream.first_key import COMMAND, make_first_key
from slipstream.settings import Settings
from tests.audited import all_audited
from tests.control.api.tampering import note_now, rewrite, tamper
from tests.databases import as_owner
from tests.slipstream.shell import Shell


async def test_a_database_that_fails_is_one_sentence(fresh_postgres_url: str) -> None:
    settings = Settings(local=LocalConfig(database_url=fresh_postgres_url))
    refusal = "do $$ begin raise exception 'could not extend file' using errcode = 'disk_full'; end $$"
    with pytest.raises(ServiceError, match="the database's disk is full: could not extend file; free some space"):
        async with connected(settings) as connection:
            await connection.execute(refusal)
    with pytest.raises(ServiceError, match=r"the database ended the connection .*; try again"):
        async with connected(settings) as connection:
            await connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")


async def test_a_database_without_migrations_is_a_fault_with_its_remedy(fresh_postgres_url: str) -> None:
    settings = Settings(local=LocalConfig(database_url=as_owner(fresh_postgres_url)))
    async with connected(settings) as connection:
        await connection.execute(f"DELETE FROM {VERSION_TABLE}")
    outcome, detail, step = await _database(settings)
    assert (outcome, detail) == (Outcome.FAILED, f"without tables; this release needs revision {newest()}")
    assert "config migrate up" in step


async def test_an_edit_made_during_the_checks_of_another_is_checked_with_it(
    fresh_postgres_url: str, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DataFolder(data_folder).prepare()
    settings = Settings(local=LocalConfig(data=str(data_folder), database_url=fresh_postgres_url))
    pool = Pool("blue", "openai", (Replica("blue-0", "http://127.0.0.1:9"),))
    model = Model("large", Tier.CHAT, "blue", 2_048)

    async def make(edit: edits.Edit) -> None:
        async with administration(settings, "test") as call:
            await fleet_edit.edited(call, fleet_edit.EditQuery(force=True), "test", edit)

    check, weights = fleet_edit._require_servable, []

    async def require_servable(call: AdminCall, before: DesiredState, after: DesiredState, *, force: bool) -> None:
        weights.append(after.pools[0].replicas[0].weight)
        if len(weights) == 1:
            await make(lambda state: edits.set_weight(state, "blue", "blue-0", 2))
        await check(call, before, after, force=force)

    await make(lambda state: edits.add_model(state, model, pool, force=True))
    monkeypatch.setattr(fleet_edit, "_require_servable", require_servable)
    await make(lambda state: edits.put_alias(state, "quick", "large"))
    assert weights == [1, 2, 2], "without the other edit, the other edit, and both"


async def test_a_busy_database_does_not_hold_a_start_up_for_a_warning(
    fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(local=LocalConfig(database_url=fresh_postgres_url))
    assert await fleet_warning(settings, "gateway-1") is None
    monkeypatch.setattr("slipstream.database.LOOK_TIMEOUT_S", 0.05)
    async with connected(settings) as other, other.transaction():
        await other.execute("LOCK TABLE gateway.desired_states")
        told = await fleet_warning(settings, "gateway-1")
    assert told is not None
    assert "the database was busy; the gateway's log" in told


async def test_a_first_start_makes_one_owner_and_says_so_in_the_log(
    connection: asyncpg.Connection[Any], fresh_postgres_url: str, data_folder: Path
) -> None:
    DataFolder(data_folder).prepare()
    local = LocalConfig(data=str(data_folder), database_url=fresh_postgres_url)
    settings = Settings(local=local)
    async with all_audited(connection) as rows:
        made = await asyncio.gather(*(make_first_key(settings) for _ in range(3)))  # starters that race
    (secret,) = [each.secret for each in made if each.secret is not None]
    (admin,) = [each.admin_secret for each in made if each.admin_secret is not None]
    assert admin.startswith("sk-slip-admin-")
    assert sorted(row["action"] for row in rows) == [
        "admin_key.create", "console_link.create", "key.create", "member.create", "organization.create",
        "organization.create", "project.create",
    ]  # fmt: skip
    assert {row["actor_kind"] for row in rows} == {"command"}
    assert all(row["actor_name"].endswith(f" ({COMMAND})") for row in rows)
    assert not [row for row in rows if secret in str(dict(row)) or admin in str(dict(row))]
    assert (await verify(connection)).problem is None
    assert (await authenticate(connection, hash_of(admin, settings.pepper))).operator


@pytest.mark.parametrize(
    ("change", "again"),
    [
        ("SELECT 1", ()),
        ("UPDATE gateway.console_links SET expires_at = now()", ("console_link",)),
        ("UPDATE gateway.projects SET name = 'other' WHERE name = 'default'", ("secret",)),
        ("UPDATE gateway.organizations SET name = 'other' WHERE name = 'demo'", ("secret",)),
        ("DELETE FROM gateway.admin_keys; DELETE FROM gateway.principals", ("admin_secret",)),
    ],
)
async def test_a_later_start_makes_what_is_missing_and_else_administers_nothing(
    connection: asyncpg.Connection[Any], fresh_postgres_url: str, data_folder: Path, monkeypatch: pytest.MonkeyPatch,
    change: str, again: tuple[str, ...],
) -> None:  # fmt: skip
    DataFolder(data_folder).prepare()
    settings = Settings(local=LocalConfig(data=str(data_folder), database_url=fresh_postgres_url))
    await make_first_key(settings)
    await connection.execute(change)
    if not again:
        monkeypatch.delattr("slipstream.administration.administration")
    made = await make_first_key(settings)
    assert made.held
    assert tuple(name for name in ("secret", "admin_secret", "console_link") if getattr(made, name)) == again


async def test_organizations_that_store_prompts_are_marked(shell: Shell) -> None:
    acme, quiet = [await shell.must("customers", "organizations", "create", name) for name in ("acme", "quiet")]
    await shell.must("customers", "organizations", "update", "acme", "--store-prompts")
    listed = await shell.must("customers", "organizations", "list")
    assert re.search(rf"^{acme} +active +acme +stores prompts$", listed, re.MULTILINE)
    assert re.search(rf"^{quiet} +active +quiet$", listed, re.MULTILINE)


async def test_a_deployment_is_administered_from_the_command_line(
    shell: Shell, connection: asyncpg.Connection[Any], fresh_postgres_url: str, data_folder: Path
) -> None:
    first = await shell.must("console", "admin-keys", "create")
    acme = await shell.must("customers", "organizations", "create", "acme")
    assert re.fullmatch(r"sk-slip-admin-[0-9A-Za-z]{38}", first)
    project = await shell.must("customers", "projects", "create", "web", "--organization", "acme", "--tier", "chat")
    member = await shell.must(
        "customers", "members", "add", "ann@example.com", "--organization", "acme", "--role", "admin"
    )
    key = await shell.must("keys", "create", "--organization", "acme", "--project", "web", "--name", "ci")
    assert "acme" in await shell.must("customers", "organizations", "list")
    projects = await shell.must("customers", "projects", "list", "--organization", acme)
    members = await shell.must("customers", "members", "list", "--organization", "acme")
    refused = await shell.run("customers", "projects", "update", "web", "--organization", "acme", "--model", "nothing")
    assert re.search(rf"{project} +active +web +chat +all", projects)
    assert re.search(rf"{member} +active +admin +ann@example.com", members)
    assert refused[0] == 1
    assert "this deployment has no model 'nothing'" in refused[1]
    key_id = await connection.fetchval("SELECT id::text FROM gateway.api_keys")
    rotated = await shell.must("keys", "rotate", key_id, "--overlap-hours", "1")
    assert rotated.rpartition("\n")[2] != key
    await shell.must("customers", "projects", "update", "web", "--organization", "acme", "--disable")
    await shell.must("keys", "revoke", key_id)
    actions = [row[0] for row in await connection.fetch("SELECT action FROM gateway.audit_log ORDER BY id")]
    assert sorted(actions) == sorted(
        ["organization.create", "member.create", "admin_key.create", "organization.create", "project.create",
         "member.create", "key.create", "key.rotate", "project.update", "key.revoke"]
    )  # fmt: skip
    whole = await shell.must("console", "audit", "verify")
    head = whole.rpartition("head ")[2]
    assert whole.startswith(f"intact: 10 rows, no head is recorded yet in {data_folder / 'audit'} (a log cut off")
    assert re.search(r"unnoticed\); head 10:[0-9a-f]{64}$", whole)
    assert (await verify(connection)).problem is None
    await tamper(fresh_postgres_url, "DELETE FROM gateway.audit_log WHERE id = 10")
    cut = await shell.run("console", "audit", "verify", "--head", head)
    assert cut[0] == 1
    assert "broken: row 10 is missing" in cut[1]
    await tamper(fresh_postgres_url, "UPDATE gateway.audit_log SET actor_name = 'x' WHERE id = 5")
    assert "row 5 was altered" in (await shell.run("console", "audit", "verify"))[1]


async def test_verification_compares_with_the_heads_that_were_noted(
    shell: Shell, fresh_postgres_url: str, data_folder: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    for number in range(3):
        await shell.must("customers", "organizations", "create", f"o{number}")
        for folder in (data_folder / "audit", elsewhere):
            await note_now(fresh_postgres_url, folder)
    assert (await shell.must("console", "audit", "verify")).startswith(
        "intact: 3 rows, 3 recorded heads found again; head 3:"
    )
    # All of it computed anew from the second row on, as only the tables' owner could: the chain itself is whole.
    await rewrite(fresh_postgres_url, from_row=2)
    for options in ((), ("--heads", str(elsewhere))):
        code, said = await shell.run("console", "audit", "verify", *options)
        assert code == 1
        assert said.startswith("broken: row 2 differs from the recorded head: the log was rewritten; 1 rows")
    (tmp_path / "empty").mkdir()
    (tmp_path / "emptied").mkdir()
    (tmp_path / "emptied" / FILE).touch()
    for without in ("absent", "empty", "emptied"):
        folder = tmp_path / without
        refused = await shell.run("console", "audit", "verify", "--heads", str(folder))
        assert refused[0] == 1
        assert refused[1].startswith(f"--heads: {folder} holds no recorded heads (heads.jsonl); name the folder")
        configured = await shell.run("console", "audit", "verify", "--config", str(_noting_in(folder, tmp_path)))
        assert configured[0] == 1
        assert configured[1].startswith(f"worker.audit.heads_folder: {folder} holds no recorded heads (heads.jsonl)")
    (elsewhere / FILE).write_text("{}\n")
    code, said = await shell.run("console", "audit", "verify", "--heads", str(elsewhere))
    assert (code, f"{elsewhere / FILE}: line 1 is not a head" in said) == (1, True)


def _noting_in(folder: Path, tmp_path: Path) -> Path:
    file = tmp_path / "noting.toml"
    file.write_text(f'[worker.audit]\nheads_folder = "{folder}"\n')
    return file


async def test_verification_says_when_the_application_could_alter_the_log(
    fresh_postgres_url: str, data_folder: Path
) -> None:
    said = await Shell(as_owner(fresh_postgres_url), data_folder).must("console", "audit", "verify")
    assert f"warning: {OWNED}" in said
    assert "intact: 0 rows" in said
    assert OWNED not in await Shell(fresh_postgres_url, data_folder).must("console", "audit", "verify")
    settings = Settings(local=LocalConfig(data=str(data_folder), database_url=as_owner(fresh_postgres_url)))
    assert await ownership_warning(settings) == OWNED
