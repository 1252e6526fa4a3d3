"""What a customer costs and may use, by commands: limits, prices, webhooks and requests, on a real database."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest

from contracts.desired_state import Model, Pool
from contracts.generation import Tier
from contracts.service_class import ServiceClass
from control.api.config import WebhooksConfig
from control.webhooks.delivery import WebhookDelivery
from gateway.desired.store import DesiredStateStore
from gateway.limits.priorities import Priority
from gateway.limits.priority_store import priorities_of_all
from gateway.limits.store import levels_of_all
from gateway.serving.request import Salts
from gateway.wire.session import body_name
from infra.local.folders import DataFolder
from infra.local.private import secret_text
from slipstream.money import told
from slipstream.operated import AdminOperation
from tests.control.api.receiver import Receiver, receiver
from tests.desired_states import seed
from tests.slipstream.shell import Shell
from tests.waiting import eventually

MODELS = (Model("slipstream-chat", Tier.CHAT, "one", 1_000), Model("slipstream-code", Tier.AUTOCOMPLETE, "one", 1_000))
ACME = ("--organization", "acme")
SET = ("customers", "limits", "set")
WEBHOOKS = WebhooksConfig(allow_private_addresses=True, timeout_s=30, attempts=3)


@pytest.fixture
async def shell(fresh_postgres_url: str, data_folder: Path) -> Shell:
    """With an organization `acme`, its project `web` and its key `ci`, and two models."""
    store = DesiredStateStore(fresh_postgres_url)
    await store.start()
    await seed(store, MODELS, (Pool("one", "sglang"),))
    await store.stop()
    shell = Shell(fresh_postgres_url, data_folder)
    await shell.must("keys", "create", "--create-missing", *ACME, "--project", "web", "--name", "ci")
    return shell


async def key_of(connection: asyncpg.Connection[Any]) -> tuple[Any, ...]:
    """Organization, project and id of the key `ci`."""
    (row,) = await connection.fetch(
        "SELECT organization_id, project_id, k.id FROM gateway.api_keys k JOIN gateway.projects p ON p.id = project_id"
    )
    return tuple(row)


async def test_limits_are_set_bit_by_bit_by_name_at_each_level(
    shell: Shell, connection: asyncpg.Connection[Any]
) -> None:
    said = await shell.must(*SET, *ACME, "--requests-per-minute", "600", "--money-per-month", "12.5")
    assert said == "organization acme, all tiers: 600 requests/min, 12.50 USD a month"
    said = await shell.must(*SET, *ACME, "--tokens-per-day", "1000000", "--requests-per-minute", "none")
    assert said == "organization acme, all tiers: 1,000,000 tokens/day, 12.50 USD a month"
    await shell.must(*SET, *ACME, "--project", "web", "--tier", "chat", "--tokens-per-minute", "5")
    await shell.must(*SET, "--key", "ci", "--max-concurrency", "4")
    assert [line.split(None, 3) for line in (await shell.must("customers", "limits", "list", *ACME)).splitlines()] == [
        ["level", "of", "tier", "limits"],
        ["organization", "acme", "all", "1,000,000 tokens/day, 12.50 USD a month"],
        ["project", "web", "chat", "5 tokens/min"],
        ["key", "ci", "all", "4 at once"],
    ]
    rules = (await levels_of_all(connection, [await key_of(connection)]))[0].rules  # as a gateway reads them
    assert [rule.limits.money_micro_per_month for rule in rules] == [12_500_000, None, None]
    assert (await shell.must("customers", "limits", "remove", "--key", "ci")) == "key ci, all tiers: none"
    await shell.must("customers", "limits", "set", *ACME, "--money-per-month", "none", "--tokens-per-day", "none")
    (_, left) = (await shell.must("customers", "limits", "list", *ACME)).splitlines()
    assert left.split()[:2] == ["project", "web"]
    for subject in (("--key", "ci"), (*ACME, "--project", "web", "--key", "ci")):
        assert (await shell.must("customers", "limits", "list", *subject)).splitlines()[0] == "none for key ci"


async def test_two_who_set_limits_at_once_overwrite_nothing_of_each_other(
    shell: Shell, connection: asyncpg.Connection[Any]
) -> None:
    """Fault: the command read the rule before it waited for the other's change, and so removed a budget that was being
    set."""
    organization_id = (await key_of(connection))[0]
    async with connection.transaction():
        await connection.execute("SELECT FROM gateway.organizations WHERE id = $1 FOR NO KEY UPDATE", organization_id)
        await connection.execute(
            "INSERT INTO gateway.limits (level, subject_id, money_micro_per_month) VALUES ('organization', $1, 5)",
            organization_id,
        )
        setting = asyncio.create_task(shell.must(*SET, *ACME, "--requests-per-minute", "60", "--share", "7"))
        await eventually(lambda: connection.fetchval("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"))
    assert await setting == "organization acme, all tiers: 60 requests/min, 0.000005 USD a month, share 7"


@pytest.mark.parametrize("form", [(), ("--json",)])
async def test_a_list_that_is_cut_says_so_in_every_form(
    shell: Shell, connection: asyncpg.Connection[Any], form: tuple[str, ...]
) -> None:
    """Fault: as JSON it ended after a hundred customers like a whole list."""
    listed = ("customers", "organizations", "list", *form)
    assert "and more" not in await shell.must(*listed)
    await connection.execute("INSERT INTO gateway.organizations (name) SELECT 'o' || i FROM generate_series(1, 100) i")
    assert "… and more: GET /admin/v1/organizations" in await shell.must(*listed)


async def test_class_and_share_are_set_beside_limits_and_told_with_them(
    shell: Shell, connection: asyncpg.Connection[Any]
) -> None:
    given = ("--class", "interactive", "--share", "300", "--max-concurrency", "9")
    said = await shell.must(*SET, *ACME, *given)
    assert said == "organization acme, all tiers: 9 at once, class interactive, share 300"
    said = await shell.must(*SET, *ACME, "--class", "none")
    assert said == "organization acme, all tiers: share 300"
    said = await shell.must(*SET, *ACME, "--project", "web", "--tier", "chat", "--class", "offline")
    assert said == "project web of acme, tier chat: class offline"
    assert [line.split(None, 3) for line in (await shell.must("customers", "limits", "list", *ACME)).splitlines()] == [
        ["level", "of", "tier", "limits"],
        ["organization", "acme", "all", "9 at once, share 300"],
        ["project", "web", "chat", "class offline"],
    ]
    of_key = (await shell.must("customers", "limits", "list", "--key", "ci")).splitlines()
    assert of_key == [
        "none for key ci",
        "in force in the tier autocomplete: class standard; share 300 of the organization, 100 of the project in it",
        "in force in the tier chat: class offline; share 300 of the organization, 100 of the project in it",
    ]
    code, output = await shell.run(*SET, "--key", "ci", "--class", "interactive")
    assert code != 0
    assert (
        "'interactive' is above the class of the organization in the tier autocomplete, 'standard' and in the" in output
    )
    assert "slipstream customers limits set --organization NAME --class interactive" in output
    (priorities,) = await priorities_of_all(connection, [await key_of(connection)])  # as a gateway reads them
    assert priorities.chat == Priority(ServiceClass.OFFLINE, 300, 100)
    assert priorities.autocomplete == Priority(ServiceClass.STANDARD, 300, 100)
    await shell.must("customers", "limits", "remove", *ACME)
    (_, left) = (await shell.must("customers", "limits", "list", *ACME)).splitlines()
    assert left.split() == ["project", "web", "chat", "class", "offline"]


async def test_an_empty_list_says_of_which_organization_and_how_another_is_named(shell: Shell) -> None:
    await shell.must("customers", "organizations", "create", "demo")
    await shell.must("customers", "organizations", "create", "empty")
    for command in ("requests", "customers webhooks", "customers projects", "customers limits"):
        assert await shell.must(*command.split(), "list") == "none in demo; --organization NAME chooses another"
        assert await shell.must(*command.split(), "list", "--organization", "empty") == "none in empty"


async def test_a_limit_that_cannot_be_is_refused_by_name(shell: Shell) -> None:
    for given, said in (
        ((), "no limit is given"),
        (("--money-per-month", "0.0000001"), "more than 6 decimal places"),
        (("--money-per-month", "-1"), "not an amount"),
        (("--money-per-month", "NaN"), "not an amount"),
        (("--money-per-month", "90000001"), "'money_micro_per_month'"),
        (("--max-concurrency", "0"), "not in the range"),
        (("--max-concurrency", "1", "--project", "nope"), "acme has no project with the id or name 'nope'"),
        (("--max-concurrency", "1", "--tier", "batch"), "'chat', 'autocomplete'"),
    ):
        code, output = await shell.run(*SET, *ACME, *given)
        assert (code != 0, said in output) == (True, True), output


def test_money_is_told_to_the_last_millionth() -> None:
    amounts = {
        0: "0.00",
        185: "0.000185",
        12_500_000: "12.50",
        25_000_000: "25.00",
        1_234_567_890_120: "1,234,567.89012",
    }
    assert {micro: told(micro, "EUR") for micro in amounts} == {micro: f"{text} EUR" for micro, text in amounts.items()}


async def test_a_price_is_set_in_the_currency_listed_and_ended_by_its_models_name(shell: Shell, tmp_path: Path) -> None:
    euros = tmp_path / "euros.toml"
    euros.write_text('[gateway.admin]\ncurrency = "EUR"\n')
    config = ("--config", str(euros))
    said = await shell.must(
        "customers", "prices", "set", "slipstream-chat", "--input", "0.20", "--output", "0.8", *config
    )
    assert said.startswith(
        "slipstream-chat: 0.20 EUR for input, 0.02 EUR for cached input, 0.80 EUR for output, a million tokens; "
        "50 % of it in the class offline from "
    )
    assert "warning" not in said
    listed = await shell.must("customers", "prices", "list", *config)
    assert re.search(r"1 +slipstream-chat +in force +\S+ \S+ +- +0\.20 EUR +0\.02 EUR +0\.20 EUR +0\.80 EUR", listed)
    assert listed.endswith("without a current price, hence free: slipstream-code")
    assert "ends at" in await shell.must("customers", "prices", "end", "slipstream-chat")
    again = ("slipstream-chat", "--input", "1", "--output", "2", "--from", "2098-01-01")
    await shell.must("customers", "prices", "set", *again)
    code, said = await shell.run("customers", "prices", "end", "slipstream-chat")
    assert (code, "name one by its version: 2 (coming), 1 (in force)" in said) == (1, True)
    assert (await shell.must("customers", "prices", "end", "2")).startswith(
        "withdrawn before it took effect: slipstream-chat: 1.00 USD"
    )
    code, said = await shell.run("customers", "prices", "end", "nothing")
    assert (code, "price 'nothing'" in said) == (1, True)


async def test_a_price_for_a_model_that_is_not_served_is_warned_of(shell: Shell) -> None:
    said = await shell.must("customers", "prices", "set", "slipstream-chatt", "--input", "0.20", "--output", "0.80")
    assert "warning: This deployment serves no model 'slipstream-chatt' (it serves: slipstream-chat, " in said
    assert "did you mean 'slipstream-chat'?" in said
    assert re.search(r"is served\. To withdraw the price: slipstream customers prices end \d+", said)
    listed = await shell.must("customers", "prices", "list")
    assert "slipstream-chatt (not served)" in listed
    assert "hence free: slipstream-chat, slipstream-code" in listed


@pytest.fixture
async def server() -> AsyncIterator[Receiver]:
    async with receiver() as running:
        yield running


class Customer:
    """Has a webhook, and a worker that sends to it while a command runs."""

    def __init__(self, shell: Shell, delivery: WebhookDelivery, config: tuple[str, ...]) -> None:
        self.shell = shell
        self._delivery = delivery
        self._config = config

    async def webhooks(self, *arguments: str) -> tuple[int, str]:
        """`slipstream customers webhooks …`, with a worker at work."""
        return await self.shell.run("customers", "webhooks", *arguments, *self._config)

    async def delivering(self, *arguments: str) -> tuple[int, str]:
        """The same while a worker delivers what is due."""
        due, stop = asyncio.Event(), asyncio.Event()

        async def wake() -> None:
            while not stop.is_set():  # as the worker's own schedule does
                due.set()
                await asyncio.sleep(0.05)

        worker, waking = asyncio.create_task(self._delivery.run(due, stop)), asyncio.create_task(wake())
        try:
            return await self.webhooks(*arguments)
        finally:
            stop.set()
            due.set()
            await asyncio.gather(worker, waking)


@pytest.fixture
async def customer(shell: Shell, fresh_postgres_url: str, data_folder: Path, tmp_path: Path) -> Customer:
    pepper = secret_text(DataFolder(data_folder).pepper_file).encode()
    settings = tmp_path / "private.toml"
    settings.write_text("[gateway.admin.webhooks]\nallow_private_addresses = true\n")
    return Customer(shell, WebhookDelivery(fresh_postgres_url, pepper, WEBHOOKS), ("--config", str(settings)))


async def test_a_webhook_is_made_tested_and_looked_at_by_its_url(customer: Customer, server: Receiver) -> None:
    made = await customer.webhooks("create", server.url, *ACME, "--event", "budget.exhausted")
    assert re.fullmatch(r"id      [-0-9a-f]{36}\nsecret  whsec_\S+", made[1])
    (_, line) = (await customer.webhooks("list", *ACME))[1].splitlines()
    assert line.split()[1:] == ["active", "budget.exhausted", server.url]
    code, said = await customer.delivering("test", server.url, *ACME)
    assert (code, said.startswith(f"delivered to {server.url}: status 200 after ")) == (0, True), said
    assert server.came[0].event["type"] == "webhook.test"
    server.answers = [500]
    code, said = await customer.delivering("test", server.url, *ACME)
    assert (code, said.startswith(f"not delivered to {server.url}: status 500")) == (1, True), said
    code, said = await customer.webhooks("test", server.url, *ACME, "--wait-s", "0.1")
    assert (code, "is a worker running?" in said) == (1, True)
    listed = (await customer.webhooks("deliveries", server.url, *ACME))[1].splitlines()
    assert [line.split()[1:3] for line in listed[1:]] == [
        ["webhook.test", "pending"],
        ["webhook.test", "failed"],
        ["webhook.test", "delivered"],
    ]
    code, said = await customer.webhooks("remove", server.url, *ACME)
    assert (code, said) == (0, f"removed {server.url}")
    code, said = await customer.webhooks("deliveries", server.url, *ACME)
    assert (code, "acme has no webhook with the id or URL" in said) == (1, True)


async def test_a_delivery_that_waits_for_its_next_attempt_is_sent_at_once_when_asked(
    customer: Customer, server: Receiver, connection: asyncpg.Connection[Any]
) -> None:
    await customer.webhooks("create", server.url, *ACME)
    code, _ = await customer.webhooks("test", server.url, *ACME, "--wait-s", "0")
    assert code == 0
    delivery_id = await connection.fetchval(
        "UPDATE gateway.webhook_deliveries SET next_attempt_at = now() + interval '6 hours' RETURNING id::text"
    )
    assert (await customer.delivering("retry", delivery_id))[0] == 0
    due = "SELECT next_attempt_at <= now() FROM gateway.webhook_deliveries"
    assert server.came or await connection.fetchval(due)
    await connection.execute(
        "UPDATE gateway.webhook_deliveries SET state = 'pending', next_attempt_at = now() + interval '10 seconds'"
    )
    code, said = await customer.webhooks("retry", delivery_id)  # it may be under way
    assert (code, "tried within 40 s automatically" in said) == (1, True)


async def test_a_bound_of_prompts_is_tried_before_it_is_set(shell: Shell, connection: asyncpg.Connection[Any]) -> None:
    now_ms, key = int(datetime.now(UTC).timestamp() * 1e3), await key_of(connection)
    for project, name in (("web", "other"), ("app", "third")):
        await shell.must("keys", "create", "--create-missing", *ACME, "--project", project, "--name", name)
    await connection.execute(
        """
        INSERT INTO gateway.request_traces
               (request_id, organization_id, project_id, key_id, status, total_ms, phases_ms, tier, prompt_tokens)
        SELECT 'req_' || lpad(to_hex($1::bigint - ago_ms), 12, '0') || 'x' || number, organization_id, project_id, k.id,
               200, 1, '{}', tier, prompt
          FROM gateway.api_keys k JOIN gateway.projects p ON p.id = project_id
          JOIN (VALUES (1, 'ci', 1000, 'chat', 100), (2, 'ci', 1000, 'chat', 40000),
                       (3, 'ci', 1000, 'autocomplete', 50000), (4, 'ci', 1000, 'chat', NULL),
                       (5, 'ci', 864000000, 'chat', 90000), (6, 'other', 1000, 'chat', 45000),
                       (7, 'third', 1000, 'chat', 100)) AS seen (number, key, ago_ms, tier, prompt) ON k.name = key
        """,
        now_ms,
    )
    said = (await shell.must("customers", "limits", "preview", *ACME, "--max-prompt-tokens", "32000")).splitlines()
    assert said[0].startswith("a bound of 32,000 tokens a prompt would have refused 3 of 5 requests (60.0%) since ")
    assert said[0].endswith(", of 2 keys")
    assert said[2].split() == ["web", "ci", "3", "2", "50,000", "50,000"]
    one_tier = ("--project", "web", "--key", "ci", "--tier", "chat")
    chat = await shell.must("customers", "limits", "preview", *ACME, *one_tier, "--max-prompt-tokens", "32000")
    assert "refused 1 of 2 requests (50.0%)" in chat
    web = await shell.must("customers", "limits", "preview", *ACME, "--project", "web", "--max-prompt-tokens", "32000")
    assert "refused 3 of 4 requests (75.0%)" in web
    longer = await shell.must("customers", "limits", "preview", *ACME, "--since", "30d", "--json")
    assert msgspec.json.decode(longer)["longest_prompt_tokens"] == 90_000
    bound = ("--project", "web", "--tier", "chat", "--max-prompt-tokens", "32000")
    done = await shell.must(*SET, *ACME, *bound)
    assert done == "project web of acme, tier chat: 32,000 tokens a prompt"
    levels = (await levels_of_all(connection, [key]))[0]  # as a gateway reads them
    cap = levels.cap(Tier.CHAT)
    assert levels.capped
    assert cap is not None
    assert (cap[0], levels.cap(Tier.AUTOCOMPLETE)) == (32_000, None)


async def test_a_session_is_listed_and_shown_turn_by_turn(
    shell: Shell, connection: asyncpg.Connection[Any], data_folder: Path
) -> None:
    first_ms = int(datetime(2026, 11, 27, 9, 0, tzinfo=UTC).timestamp() * 1e3)
    ids = [f"req_{first_ms + offset_ms:012x}{number:024x}" for number, offset_ms in enumerate((0, 2_500, 9_000))]
    await connection.execute(
        """
        INSERT INTO gateway.request_traces
               (request_id, organization_id, project_id, key_id, status, total_ms, phases_ms, model, session,
                session_agent, session_parent, prompt_tokens, cached_tokens, completion_tokens)
        SELECT seen.id, organization_id, project_id, k.id, 200, 1500, '{}', 'slipstream-chat', 's/1', agent, parent,
               prompt, cached, 20
          FROM gateway.api_keys k JOIN gateway.projects p ON p.id = project_id,
               (VALUES ($1, NULL, NULL, 4000, 0), ($2, NULL, NULL, 5000, 64), ($3, 'sub', 'main', 700, 0))
               AS seen (id, agent, parent, prompt, cached)
        """,
        *ids,
    )
    await connection.execute(
        """
        INSERT INTO gateway.prefix_samples (request_id, organization_id, project_id, model, tier, endpoint, template,
               session_id, turn, prompt_tokens, reusable_tokens, cause, blocks)
        SELECT request_id, organization_id, project_id, model, 'chat', 'chat', 't', request_id, 1, 5000, 64, 'date',
               '{}' FROM gateway.request_traces WHERE request_id = $1
        """,
        ids[1],
    )
    listed = (await shell.must("requests", "list", *ACME, "--session", "s/1")).splitlines()
    assert [line.split()[-1] for line in listed] == ["request", *reversed(ids)]
    assert (await shell.must("requests", "list", *ACME, "--session", "another")).startswith("none in")
    said = (await shell.must("requests", "session", "s/1", *ACME)).splitlines()
    assert said[:2] == [
        "session s/1: 3 turns of 2 agents",
        "  9,700 prompt tokens (1% cached), 3,936 lost; 60 generated; 0.00 USD",
    ]
    assert [line.split()[2:10] for line in said[3:]] == [
        ["-", "-", "200", "4,000", "0", "0", "-", "20"],
        ["1.0", "s", "-", "200", "5,000", "64", "3,936", "date"],
        ["-", "sub", "200", "700", "0", "0", "-", "20"],
    ]
    assert "session s/1, agent sub, begun by main" in await shell.must("requests", "show", ids[2])
    pepper = secret_text(DataFolder(data_folder).pepper_file).encode()
    organization = await connection.fetchval("SELECT id FROM gateway.organizations WHERE name = 'acme'")
    digest = body_name("ada@acme.example", Salts(pepper).of(str(organization)))
    await connection.execute("UPDATE gateway.request_traces SET session = $1 WHERE request_id = $2", digest, ids[2])
    for name in ("ada@acme.example", digest):
        found = (await shell.must("requests", "session", name, *ACME)).splitlines()
        assert (found[0], found[-1].split()[-1]) == (f"session {digest}: 1 turn", ids[2])
    code, said_of_none = await shell.run("requests", "session", "no such", *ACME)
    assert (code, "There is no session no such." in said_of_none) == (1, True)


async def test_requests_are_listed_by_key_and_error(shell: Shell, connection: asyncpg.Connection[Any]) -> None:
    await shell.must("keys", "create", "--create-missing", *ACME, "--project", "app", "--name", "other")
    await connection.execute(
        """
        INSERT INTO gateway.request_traces
               (request_id, organization_id, project_id, key_id, status, error_code, total_ms, phases_ms, model)
        SELECT 'req_' || number, organization_id, project_id, k.id, status, code, 12, '{}', 'slipstream-chat'
          FROM gateway.api_keys k JOIN gateway.projects p ON p.id = project_id
          JOIN (VALUES (0, 'other', 200, NULL), (1, 'ci', 200, NULL), (2, 'ci', 429, 'insufficient_quota'))
               AS seen (number, key, status, code) ON k.name = key
        """
    )
    for narrowed in (("--project", "web"), ("--key", "ci", "--project", "web")):
        listed = (await shell.must("requests", "list", *ACME, *narrowed)).splitlines()
        assert [line.split()[-1] for line in listed] == ["request", "req_2", "req_1"]
    _, line = (await shell.must("requests", "list", *ACME, "--error-code", "insufficient_quota")).splitlines()
    told = ["429", "insufficient_quota", "slipstream-chat", "-", "-", "0.00", "USD", "-", "12", "ms", "req_2"]
    assert line.split()[2:] == told
    for name in ("req_2", "chatcmpl-2", "cmpl-2"):
        assert (await shell.must("requests", "show", name)).startswith("req_2\n  status 429, insufficient_quota")
    await connection.execute(
        """
        UPDATE gateway.request_traces
           SET attempts = 1, ttft_ms = 81.25, tpot_ms = 9.5, itl_max_ms = 1140, gaps_over_100ms = 2,
               client_stall_ms = 3.5, engine_queue_ms = 11, engine_prefill_ms = 60.5, retractions = 1
         WHERE request_id = 'req_1'
        """
    )
    shown = (await shell.must("requests", "show", "req_1")).splitlines()
    assert shown[2:] == [
        "  first text after 81.2 ms; 9.5 ms per further token; longest gap 1,140.0 ms (2 over 100 ms);"
        " the client read nothing for 3.5 ms",
        "  its engine reports: 11.0 ms in its queue, 60.5 ms of prefill, retracted 1 times",
    ]
    await connection.execute(
        """
        INSERT INTO gateway.usage_events
               (request_id, attempt, organization_id, project_id, key_id, model, tier, endpoint, stream, prompt_tokens,
                cached_tokens, completion_tokens, reasoning_tokens, outcome, finish, billed, status, error_code,
                phases_ms, requested_at, opened_at, closed_at, gateway_id)
        SELECT request_id, 0, organization_id, project_id, key_id, model, 'chat', 'chat', false, 0, 0, 0, 0, 'exact',
               'engine_error', false, 400, 'engine_refused', '{}', now(), now(), now(), 'gateway-0'
          FROM gateway.request_traces WHERE request_id = 'req_2'
        """
    )
    of_engine = (await shell.must("requests", "show", "req_2")).splitlines()[-1]
    assert of_engine.endswith("0 generated; exact, engine_refused, not billed"), "a refusal is not the engine's error"
    assert '"tpot_ms":9.5' in await shell.must("requests", "show", "req_1", "--json")
    good = (await shell.must("requests", "list", *ACME, "--status", "200", "--json")).splitlines()
    assert [msgspec.json.decode(line)["request_id"] for line in good] == ["req_1", "req_0"]


async def test_each_list_and_each_change_is_also_json_a_line(shell: Shell) -> None:
    await shell.must(*SET, *ACME, "--max-concurrency", "3")
    for command, field, value in (
        ("customers organizations list", "name", "acme"),
        ("customers projects list --organization acme", "name", "web"),
        ("customers limits list --organization acme", "limits", "3 at once"),
        ("keys list --organization acme", "name", "ci"),
    ):
        lines = (await shell.must(*command.split(), "--json")).splitlines()
        assert value in [msgspec.json.decode(line)[field] for line in lines], command
    for command in ("prices list", "members list", "adapters list", "webhooks list"):
        of = () if command == "prices list" else ACME
        assert "{" not in await shell.must("customers", *command.split(), *of, "--json")
    for command in ("admin-keys", "accounts"):
        assert await shell.must("console", command, "list", "--json") == ""
    made = msgspec.json.decode(await shell.must("customers", "organizations", "create", "beta", "--json"))
    after = msgspec.json.decode(await shell.must("customers", "organizations", "disable", "beta", "--json"))
    assert (made["id"], made["disabled_at"], after["disabled_at"] is None) == (after["id"], None, False)
    assert AdminOperation("tenants.members.list_members").url() == "/organizations/{organization_id}/members"
