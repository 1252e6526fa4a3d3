"""What must hold for every command there is: what it changes is in the audit log, with the command that changed it.

A command that is added is tested here, or fails for want of an example.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import click

from contracts.desired_state import DesiredState, Model, Pool
from contracts.generation import Tier
from control.billing.partitions import retire_days
from gateway.desired.store import DesiredStateStore
from gateway.metering.ledger.ledger import Ledger
from slipstream.__main__ import cli
from tests.audited import all_audited, test_every_table_is_in_one_list  # noqa: F401  run here
from tests.control.diagnosis.stored_traffic import TRACED_AN_HOUR_AGO
from tests.control.releases.fleets import put_fleet
from tests.databases import as_owner
from tests.desired_states import put, seed
from tests.gateway.metering.rows import moment, row
from tests.slipstream.shell import Shell

READING = frozenset({
    "batches list", "batches show", "config check", "config show", "console accounts list", "console admin-keys list",
    "console audit list", "console audit verify", "customers adapters list", "customers limits list",
    "customers limits preview", "customers members list", "customers organizations list", "customers prices list",
    "customers projects list", "customers webhooks deliveries", "customers webhooks list", "diagnose changes list",
    "diagnose slo", "doctor", "evals list", "evals nights", "evals show", "evals slices", "fleet diff",
    "fleet models list", "fleet models show", "fleet pools list", "fleet pools show", "fleet versions", "keys list",
    "logs", "releases list", "releases replay", "releases reviews list", "releases reviews next", "releases shadow",
    "releases show", "releases watch", "requests list", "requests session", "requests show", "router explain",
    "router replay", "router watch", "status", "tools audit-stream", "tools engines render", "tools lsp", "tools plan",
    "tools quantization calibrate", "tools quantization export", "tools quantization gate",
    "tools quantization sensitivity", "tools simulate", "top", "usage autocomplete stats", "usage drafts",
    "usage export", "usage good-tokens", "usage invoice", "usage prefix", "usage totals", "usage verify",
    "usage workload",
})  # fmt: skip
"""Change nothing that is administered."""
PROCESSES = frozenset(
    {
        "up",
        "down",
        "control",
        "fleet drain",
        "fleet resume",
        "engine",
        "gateway",
        "worker",
        "run",
        "tools bench",
        "usage autocomplete fit",
        "config migrate up",
        "config migrate down",
    }
)
"""Start or stop a process, or change the shape of the tables. What `up`, a gateway and a worker change by themselves is
tested below, and what `run`, `bench` and `fit` change (a key, by `slipstream.lent_key`) in test_run_command.py."""

Step = tuple[str, tuple[str, ...], set[str]]
STEPS: tuple[Step, ...] = (
    ("customers organizations create", ("acme",), {"organization.create"}),
    ("customers projects create", ("web", "--organization", "acme"), {"project.create"}),
    ("keys create", ("--organization", "acme", "--project", "web", "--name", "one"), {"key.create"}),
    (
        "keys create",
        ("--create-missing", "--organization", "new", "--project", "new", "--name", "two", "--tokens-per-minute", "5"),
        {"organization.create", "project.create", "key.create", "limits.put"},
    ),
    ("customers limits set", ("--organization", "acme", "--money-per-month", "5"), {"limits.put"}),
    ("customers limits remove", ("--organization", "acme"), {"limits.delete", "priorities.delete"}),
    ("customers adapters add", ("m", "support", "/srv/adapters/one", "--organization", "acme"), {"adapter.create"}),
    ("customers adapters remove", ("m:support", "--organization", "acme"), {"adapter.delete"}),
    ("customers prices set", ("m1", "--input", "1", "--output", "2"), {"price.create"}),
    ("customers prices end", ("m1",), {"price.update"}),
    ("customers webhooks create", ("https://example.com/hook", "--organization", "acme"), {"webhook.create"}),
    ("customers webhooks test", ("{webhook}", "--wait-s", "0"), {"webhook.test"}),
    ("customers webhooks retry", ("{delivery}",), {"delivery.retry"}),
    ("customers webhooks remove", ("{webhook}",), {"webhook.delete"}),
    ("customers projects update", ("web", "--organization", "acme", "--tier", "chat", "--disable"), {"project.update"}),
    ("customers members add", ("ann@example.com", "--organization", "acme"), {"member.create"}),
    ("console admin-keys create", ("--organization", "acme", "--email", "ann@example.com"), {"admin_key.create"}),
    ("console admin-keys create", (), {"organization.create", "member.create", "admin_key.create"}),
    ("console admin-keys revoke", ("{admin_key}",), {"admin_key.revoke"}),
    ("console open", ("--no-browser",), {"console_link.create"}),
    ("console link", ("bob@example.com",), {"member.create", "console_link.create"}),
    ("console accounts reset", ("{account}", "--totp"), {"console_account.reset", "console_link.create"}),
    ("customers members remove", ("ann@example.com", "--organization", "acme"), {"member.delete"}),
    ("keys rotate", ("{key}",), {"key.rotate"}),
    ("keys revoke", ("one",), {"key.revoke"}),
    ("customers organizations update", ("acme", "--store-prompts"), {"organization.update"}),
    (
        "diagnose changes add",
        ("chunked prefill", "--expected-ms=-350", "--statistic", "p50", "--window", "60s"),
        {"change.create"},
    ),
    ("diagnose changes measure", ("{measurable}",), {"change.measure"}),
    ("diagnose changes remove", ("{change}",), {"change.delete"}),
    ("releases reviews vote", ("{review}", "left"), {"review.vote"}),
    ("fleet pools set", ("green", "--driver", "sglang", "--replica", "g0=http://h:1"), {"desired_state.pool.put"}),
    ("fleet replicas add", ("green", "g1", "http://h:2", "--weight", "2"), {"desired_state.replica.put"}),
    (
        "fleet models set",
        ("m1", "--tier", "chat", "--pool", "green", "--context-tokens", "9"),
        {"desired_state.model.put"},
    ),
    ("fleet models alias", ("quick", "m1"), {"desired_state.alias.put"}),
    ("fleet replicas weight", ("g1", "0.5"), {"desired_state.replica.weight"}),
    ("fleet replicas drain", ("g1",), {"desired_state.replica.weight"}),
    ("fleet replicas remove", ("g1",), {"desired_state.replica.remove"}),
    ("fleet models remove", ("m1", "--force"), {"desired_state.model.remove"}),
    ("fleet pools remove", ("green",), {"desired_state.pool.remove"}),
    ("fleet rollback", ("5",), {"desired_state.rollback"}),
    (
        "import litellm",
        (str(Path(__file__).parent / "litellm_import" / "small.yaml"),),
        {"desired_state.litellm.import", "price.create"},
    ),
    ("evals run", ("--model", "m", "--slices", "facts", "--no-wait"), {"eval_run.create"}),
    (
        "evals compare",
        ("old", "new", "--model", "m", "--slices", "facts", "--no-wait"),
        {"eval_comparison.create"},
    ),
    ("evals cancel", ("{comparison}",), {"eval_comparison.cancel"}),
    ("fleet models cascade", ("m", "--comparison", "{passed}"), {"desired_state.cascade.approve"}),
    ("releases start", ("--model", "m", "--candidate", "new"), {"release.start"}),
    ("releases hold", ("{running}", "--reason", "lunch"), {"release.hold"}),
    ("releases resume", ("m", "--reason", "back"), {"release.resume"}),
    ("releases promote", ("m", "--reason", "it is good"), {"release.promote"}),
    ("releases rollback", ("m", "--reason", "it is not"), {"release.roll_back"}),
    ("customers organizations disable", ("acme",), {"organization.update"}),
    ("customers organizations enable", ("acme",), {"organization.update"}),
)
IDS = {
    "{key}": "SELECT id::text FROM gateway.api_keys WHERE name = 'one'",
    "{webhook}": "SELECT id::text FROM gateway.webhooks",
    "{delivery}": "UPDATE gateway.webhook_deliveries SET state = 'failed' RETURNING id::text",
    # an hour ago, between requests
    "{measurable}": f"""
        WITH traced AS ({TRACED_AN_HOUR_AGO})
        UPDATE gateway.changes SET made_at = now() - interval '1 hour' RETURNING id::text
    """,
    "{review}": """
        INSERT INTO gateway.reviews (model, release, unit, candidate_left, project_id, prompt, baseline, candidate)
        SELECT 'm', 'r', 1, true, id, 'p', 'b', 'c' FROM gateway.organizations LIMIT 1 RETURNING id::text
    """,
    # of a release that waits: begun, and its model split by it
    "{running}": """
        WITH split AS (
            INSERT INTO gateway.desired_states (version, document)
            SELECT version + 1, jsonb_set(document, '{models,0,canary}', (
                SELECT jsonb_build_object('pool', 'new', 'share', 0, 'shadow_share', 0.05, 'release', id::text)
                  FROM gateway.releases))
              FROM gateway.desired_states ORDER BY version DESC LIMIT 1)
        UPDATE gateway.releases SET state = 'running', policy = '{}', thresholds = '{}' RETURNING id::text
    """,
    # as if it were of a cascade, and had passed
    "{passed}": """
        WITH cascade AS (
            INSERT INTO gateway.desired_states (version, document)
            SELECT version + 1,
                   jsonb_set(
                       jsonb_set(document, '{models,1,pool}', '"new"'), '{models,0,cascade}', '{"first": "other"}'
                   )
              FROM gateway.desired_states ORDER BY version DESC LIMIT 1)
        UPDATE evals.comparisons
           SET model = 'm', status = 'done', decision = 'pass', verdict = '{"slices": [{"lower": 0.0}]}',
               created_at = clock_timestamp()
        RETURNING id::text
    """,
    "{change}": "SELECT id::text FROM gateway.changes",
    "{comparison}": "SELECT id::text FROM evals.comparisons",
    "{account}": """
        INSERT INTO gateway.console_accounts (principal_id, password_hash)
        SELECT id, 'x' FROM gateway.principals WHERE email = 'bob@example.com' RETURNING principal_id::text
    """,
    "{admin_key}": "SELECT display FROM gateway.admin_keys ORDER BY created_at LIMIT 1",
}


def test_every_command_is_known_here() -> None:
    assert set(_commands(cli)) == {name for name, _, _ in STEPS} | READING | PROCESSES


def _commands(command: click.Command, *path: str) -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield " ".join(path)
        return
    context = click.Context(command)  # groups load their commands by name, as the program asks for them
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from _commands(inner, *path, name)


async def test_what_each_command_changes_is_in_the_log_with_its_name(
    connection: asyncpg.Connection[Any], fresh_postgres_url: str, data_folder: Path
) -> None:
    shell = Shell(fresh_postgres_url, data_folder)
    await put_fleet(connection)
    for command, given, actions in STEPS:
        arguments = [await connection.fetchval(IDS[each]) if each in IDS else each for each in given]
        async with all_audited(connection) as rows:
            secret = (await shell.must(*command.split(), *arguments)).rpartition("\n")[2]
        assert {each["action"] for each in rows} == actions, command
        assert {each["actor_kind"] for each in rows} == {"command"}
        assert all(each["actor_name"].endswith(f" (slipstream {command})") for each in rows), command
        assert not [each for each in rows if "sk-slip-" in secret and secret in str(dict(each))]
    for command in (
        "console admin-keys list",
        "console audit list",
        "keys list",
        "customers members list",
        "customers organizations list",
    ):
        async with all_audited(connection) as rows:
            await shell.must(
                *command.split(), *(("--organization", "acme") if command == "customers members list" else ())
            )
        assert rows == [], command


async def test_a_command_that_fails_half_way_leaves_neither_a_change_nor_a_row(
    connection: asyncpg.Connection[Any], fresh_postgres_url: str, data_folder: Path
) -> None:
    shell = Shell(fresh_postgres_url, data_folder)
    async with all_audited(connection) as rows:
        code, said = await shell.run(
            "keys", "create", "--create-missing", "--organization", "made first", "--project", "too long " * 50,
            "--name", "k",
        )  # fmt: skip
    assert (code, rows) == (1, [])
    assert "'name'" in said
    assert await connection.fetchval("SELECT count(*) FROM gateway.organizations") == 0


async def test_the_models_that_a_gateway_takes_from_its_settings_are_in_the_log(
    connection: asyncpg.Connection[Any], fresh_postgres_url: str
) -> None:
    store = DesiredStateStore(fresh_postgres_url)
    await store.start()
    try:
        for number, action in ((1, "seed"), (2, "seed"), (3, "put")):
            models = (Model(f"m{number}", Tier.CHAT, "one", 1_000),)
            async with all_audited(connection) as rows:
                if action == "seed":
                    await seed(store, models, (Pool("one", "sglang"),))
                    await seed(store, models, (Pool("one", "sglang"),))  # already so: no change
                else:
                    await put(store, DesiredState(0, models, store.current.pools))
            (found,) = rows
            assert (found["action"], found["subject_id"]) == (f"desired_state.{action}", str(number))
            assert (found["actor_kind"], found["actor_name"]) == ("system", "slipstream gateway")
            assert (found["before"] is None) == (number == 1)
    finally:
        await store.stop()


async def test_a_day_that_retention_drops_is_in_the_log(
    connection: asyncpg.Connection[Any], fresh_postgres_url: str
) -> None:
    owner = await asyncpg.connect(as_owner(fresh_postgres_url))
    await owner.execute("ALTER TABLE gateway.usage_events ALTER recorded_at SET DEFAULT '2026-03-01 14:00Z'")
    await owner.close()
    noon = moment("2026-03-01 12:00")
    async with asyncpg.create_pool(fresh_postgres_url, min_size=1, max_size=1) as pool:
        await Ledger(pool).insert([row(random.Random(1), noon, noon + 60) for _ in range(7)], "g")
    async with all_audited(connection) as rows:
        assert len(await asyncio.to_thread(retire_days, fresh_postgres_url, 35)) == 1
    (found,) = rows
    assert (found["action"], found["subject_id"]) == ("ledger.retire_day", "2026-03-01")
    assert (found["actor_kind"], found["actor_name"]) == ("system", "slipstream worker")
    assert '"rows": 7' in found["before_text"]
    assert datetime.now(UTC) - found["at"] < timedelta(minutes=5)
