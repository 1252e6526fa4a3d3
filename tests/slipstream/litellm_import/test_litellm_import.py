"""`slipstream import litellm` of a whole proxy, on a real database: what moves, what is noted, and that keys go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest

from contracts.errors import InvalidKey
from gateway.auth.config import AuthConfig
from gateway.auth.keyring import Keyring
from gateway.auth.scopes import Scope
from gateway.limits.levels import Level
from infra.local.folders import DataFolder
from infra.local.private import secret_text
from tests.slipstream.litellm_import.proxy import CONFIG, SECRET_OF_ACME, SECRETS, fill
from tests.slipstream.shell import Shell

EVERYTHING = """
SELECT (SELECT count(*) FROM gateway.organizations), (SELECT count(*) FROM gateway.projects),
       (SELECT count(*) FROM gateway.api_keys), (SELECT count(*) FROM gateway.limits),
       (SELECT count(*) FROM gateway.prices), (SELECT count(*) FROM gateway.audit_log),
       (SELECT max(version) FROM gateway.desired_states)
"""


@pytest.fixture
def shell(fresh_postgres_url: str, data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("SMALL_URL", "http://10.0.0.3:30000")
    return Shell(fresh_postgres_url, data_folder)


@pytest.fixture
async def database(empty_postgres_url: str) -> str:
    await fill(empty_postgres_url)
    joint = "&" if "?" in empty_postgres_url else "?"
    return f"{empty_postgres_url}{joint}schema=litellm&connection_limit=10"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG)
    return file


async def test_a_proxy_moves_whole_once_and_its_keys_go_on(
    shell: Shell, config: Path, database: str, connection: asyncpg.Connection[Any], fresh_postgres_url: str,
    data_folder: Path,
) -> None:  # fmt: skip
    command = ("import", "litellm", str(config), "--database", database)
    before = await connection.fetchrow(EVERYTHING)
    tried = msgspec.json.decode(await shell.must(*command, "--dry-run", "--json"))
    assert await connection.fetchrow(EVERYTHING) == before, "a dry run changes nothing"

    done = msgspec.json.decode(await shell.must(*command, "--json"))
    assert (done["objects"], done["notes"]) == (tried["objects"], tried["notes"])
    assert all(each["new"] for each in done["objects"])
    after = await connection.fetchrow(EVERYTHING)
    again = msgspec.json.decode(await shell.must(*command, "--json"))
    assert not any(each["new"] for each in again["objects"])
    assert await connection.fetchrow(EVERYTHING) == after, "a second import changes nothing"
    assert again["notes"] == done["notes"]

    names = {(each["kind"], each["name"]) for each in done["objects"]}
    assert {name for kind, name in names if kind == "key"} == {
        "acme / default / acme-ci",
        "acme / default: qwen-coder / acme-narrow",
        "litellm / ada@acme.example / ada-laptop",
    }
    assert {name for kind, name in names if kind == "organization"} == {"Holding", "acme", "acme (t2)", "litellm"}

    pepper = secret_text(DataFolder(data_folder).pepper_file).encode()
    keyring = Keyring(fresh_postgres_url, pepper, AuthConfig())
    await keyring.start()
    record = await keyring.identify(SECRET_OF_ACME)
    assert record.models == frozenset({"qwen-coder", "team/small"}), "gpt-4o is an alias; the model `gone` is nowhere"
    found = {(rule.level, name): value for rule in record.levels.rules for name, value in _given(rule.limits).items()}
    assert found == {
        (Level.ORGANIZATION, "requests_per_minute"): 60,
        (Level.ORGANIZATION, "money_micro_per_month"): 20_000_000,
        (Level.KEY, "max_concurrency"): 3,
    }
    narrow = await keyring.identify(SECRETS["acme-narrow"])
    assert (narrow.models, narrow.scopes) == (frozenset({"qwen-coder"}), frozenset({Scope.CHAT}))
    for name in ("blocked", "expired", "ops-narrow", "ui"):
        with pytest.raises(InvalidKey, match="This is not a Slipstream API key"):
            await keyring.identify(SECRETS[name])
    told = (await shell.must("keys", "rotate", "acme-ci")).split()
    rotated = next(word for word in told if word.startswith("sk-slip-"))
    assert (await keyring.identify(rotated)).caller == record.caller
    assert (await keyring.identify(SECRET_OF_ACME)).caller == record.caller, "until the end of the overlap"
    await keyring.stop()
    assert await connection.fetchval("SELECT disabled_at IS NOT NULL FROM gateway.organizations WHERE name LIKE '%t2%'")


def _given(limits: msgspec.Struct) -> dict[str, int]:
    return {name: value for name, value in msgspec.structs.asdict(limits).items() if value is not None}


async def test_models_become_pools_and_everything_else_is_noted(shell: Shell, config: Path) -> None:
    done = msgspec.json.decode(await shell.must("import", "litellm", str(config), "--json"))
    model = msgspec.json.decode(await shell.must("fleet", "models", "show", "qwen-coder"))
    assert model == {
        "name": "qwen-coder", "tier": "chat", "pool": "qwen-coder", "context_tokens": 65_536, "aliases": ["gpt-4o"],
        "engine_model": "Qwen/Qwen3-Coder",
    }  # fmt: skip
    pool = msgspec.json.decode(await shell.must("fleet", "pools", "show", "qwen-coder"))
    assert (pool["driver"], [(each["url"], each.get("weight", 1)) for each in pool["replicas"]]) == (
        "vllm",
        [("http://10.0.0.1:8000/v1", 1), ("http://10.0.0.2:8000/v1", 2)],
    )
    embed = msgspec.json.decode(await shell.must("fleet", "models", "show", "embed"))
    assert (embed["task"], embed["tier"]) == ("embedding", "chat")
    assert "0.20 USD" in await shell.must("customers", "prices", "list", "--model", "qwen-coder")
    noted = {each["where"]: (each["outcome"], each["what"]) for each in done["notes"]}
    for where, outcome in {
        "model_list[2] qwen-coder": "left out",
        "model_list[5] openai/*": "left out",
        "model_list[6] speech": "left out",
        "model_list[0] qwen-coder: rpm": "left out",
        "model_list[3] team/small: timeout": "left out",
        "model_list[3] team/small: api_key": "left out",
        "model_list[3] team/small: model_info.supports_vision": "left out",
        "model_list[3] team/small: input_cost_per_token": "differs",
        "model_list[4] embed: weight": "left out",
        "alias gone of nowhere": "left out",
        "alias mini": "differs",
        "model team/small": "differs",
        "router_settings.routing_strategy": "left out",
        "router_settings.fallbacks (qwen-coder to team/small)": "left out",
        "router_settings.num_retries": "left out",
        "litellm_settings.drop_params": "left out",
        "litellm_settings.success_callback": "left out",
        "general_settings.master_key": "left out",
        "general_settings.unheard_of": "left out",
        "guardrails": "left out",
    }.items():
        assert noted[where][0] == outcome, where
    assert "sk-real-secret" not in str(done), "no secret is repeated"
    assert "sk-master" not in str(done)


async def test_what_is_there_stays_and_is_noted(
    shell: Shell, config: Path, database: str, connection: asyncpg.Connection[Any]
) -> None:
    await shell.must("import", "litellm", str(config), "--database", database)
    await shell.must("limits", "set", "--organization", "acme", "--requests-per-minute", "5")
    await shell.must("models", "set", "qwen-coder", "--context-tokens", "1000", "--wait-s", "0")
    said = await shell.must("import", "litellm", str(config), "--database", database)
    assert "other limits are set here; it stays as it is" in said
    assert "a model or an alias of this name is here; it stays as it is" in said
    assert (
        await connection.fetchval("SELECT requests_per_minute FROM gateway.limits WHERE money_micro_per_month = 2e7")
        == 5
    )


async def test_a_wrong_file_or_database_says_what_it_lacks(
    shell: Shell, config: Path, tmp_path: Path, empty_postgres_url: str
) -> None:
    wrong = tmp_path / "wrong.yaml"
    for text, told in (("- a\n", "this is list"), ("model_list: 3\n", "Expected `array`"), ("a: [", "not readable")):
        wrong.write_text(text)
        code, said = await shell.run("import", "litellm", str(wrong))
        assert (code, told in said) == (1, True), said
    code, said = await shell.run("import", "litellm", str(config), "--database", empty_postgres_url)
    assert (code, 'there is no table "LiteLLM_VerificationToken"' in said) == (1, True), said
    code, said = await shell.run("import", "litellm", str(config), "--database", "postgresql://127.0.0.1:1/none")
    assert (code, "cannot be reached" in said) == (1, True), said
