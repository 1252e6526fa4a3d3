"""What the deployment asks for itself, through a real gateway, router and engine: on any pool, on no bill, in nothing
that customers are told or promised; and nobody else can ask so."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest

from contracts.errors import ConfigError, InvalidField
from control.billing.rollup import roll_up
from control.eval_runs.config import EvalsConfig
from control.eval_runs.runner import Runner
from control.evals import store
from control.evals.evals import NewComparison, NewRun, create_eval_comparison, create_eval_run
from control.releases.releases import NewRelease, start_release
from control.tenants.keys import KeyChanges, NewKey, create_key, update_key
from gateway.auth.scopes import Scope
from infra.local.config import LocalConfig
from slipstream.administration import administration
from slipstream.evals import EvalsKey
from slipstream.settings import Settings
from storage.engine import connect
from storage.tables.evals import Status
from tests.control.eval_runs.answering import Numbers
from tests.control.eval_runs.test_runner import ended
from tests.control.killable import working
from tests.gateway.slow_platform import SlowPlatform, slow_platform

CODE_MODEL = Path(__file__).parents[3] / "models" / "slipstream-code"


class World:
    """A platform with the key of evals."""

    def __init__(self, platform: SlowPlatform, url: str, settings: Settings, key: str) -> None:
        self.platform = platform
        self.database_url = url
        self.settings = settings
        self.key = key

    async def ask(self, key: str, pool: str | None, model: str = "wide") -> tuple[int, Any, str]:
        """Status, body and request id of a chat request."""
        headers = {"authorization": f"Bearer {key}"} | ({} if pool is None else {"x-slipstream-pool": pool})
        body = {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
        async with self.platform.session.post(
            f"{self.platform.url}/v1/chat/completions", json=body, headers=headers
        ) as response:
            return response.status, msgspec.json.decode(await response.read()), response.headers["x-request-id"]


@pytest.fixture(scope="module")
async def world(new_postgres_url: Callable[[], Awaitable[str]], valkey_url: str) -> AsyncIterator[World]:
    url = await new_postgres_url()
    async with slow_platform(url, valkey_url, code_tokenizer=CODE_MODEL) as platform:
        settings = Settings(local=LocalConfig(data=str(platform.data.path), database_url=url))
        yield World(platform, url, settings, await EvalsKey(settings).of(""))


@pytest.fixture
async def connection(world: World) -> AsyncIterator[asyncpg.Connection[Any]]:
    connection = await connect(world.database_url)
    yield connection
    await connection.close()


async def test_they_run_on_the_pool_they_name_and_cost_nobody_anything(
    world: World, connection: asyncpg.Connection[Any]
) -> None:
    await world.platform.command("customers", "prices", "set", "wide", "--input", "1000", "--output", "1000")
    theirs = await world.platform.ask("wide")
    status, _, ours = await world.ask(world.key, "narrow")
    assert status == 200
    row = await world.platform.charge(ours)
    assert (row["pool"], row["purpose"], row["billed"], row["amount_micro"]) == ("narrow", "evals", False, 0)
    assert row["completion_tokens"] == 4
    row = await world.platform.charge(theirs.request_id)
    assert (row["pool"], row["purpose"], row["billed"]) == ("wide", None, True)
    await asyncio.to_thread(roll_up, world.database_url)
    organizations = {row[0] for row in await connection.fetch("SELECT organization_id FROM gateway.usage_hourly")}
    internal = await connection.fetchval("SELECT id FROM gateway.organizations WHERE internal")
    assert organizations
    assert internal not in organizations


async def test_they_are_in_nothing_that_customers_are_promised(
    world: World, connection: asyncpg.Connection[Any]
) -> None:
    before = await world.platform.phase_sums()
    assert (await world.ask(world.key, "wide"))[0] == 200
    assert (await world.ask(world.key, "nowhere"))[0] == 400
    assert await world.platform.phase_sums() == before
    after = await world.platform.ask("wide")
    await world.platform.trace(after.request_id)  # written behind the others
    await world.platform.sample(after.request_id)
    internal = await connection.fetchval("SELECT id FROM gateway.organizations WHERE internal")
    for table in ("request_traces", "prefix_samples"):
        assert not await connection.fetchval(
            f"SELECT count(*) FROM gateway.{table} WHERE organization_id = $1", internal
        )
    async with world.platform.session.get(f"{world.platform.metrics_url}/metrics") as response:
        told = await response.text()
    assert 'slipstream_own_requests_total{code="none",purpose="evals",status="200"}' in told


async def test_nobody_else_chooses_a_pool_and_there_must_be_one(world: World) -> None:
    status, body, _ = await world.ask(world.platform.key, "wide")
    assert (status, body["error"]["code"], body["error"]["param"]) == (403, "insufficient_scope", "x-slipstream-pool")
    status, body, _ = await world.ask(world.key, "nowhere")
    assert (status, body["error"]["code"], body["error"]["param"]) == (400, "invalid_value", "x-slipstream-pool")
    assert body["error"]["message"].endswith("there is no pool 'nowhere'. Pools: narrow, wide.")


async def test_a_customer_can_have_no_such_key(world: World, connection: asyncpg.Connection[Any]) -> None:
    project_id = await connection.fetchval("SELECT id FROM gateway.projects WHERE name = 'p' LIMIT 1")
    key_id = await connection.fetchval("SELECT id FROM gateway.api_keys WHERE project_id = $1 LIMIT 1", project_id)
    async with administration(world.settings, "a test") as call:
        with pytest.raises(InvalidField, match="internal organization"):
            await create_key(call, project_id, NewKey(name="free", scopes=[Scope.EVALS]))
        with pytest.raises(InvalidField, match="internal organization"):
            await update_key(call, key_id, KeyChanges(scopes=[Scope.CHAT, Scope.EVALS]))
    # nor does the scope alone help who has got it all the same
    minted = await world.platform.add_key()
    await connection.execute("UPDATE gateway.api_keys SET scopes = '{chat,evals}' WHERE hash = $1", minted.hash)
    assert (await world.ask(minted.secret, "wide"))[1]["error"]["code"] == "insufficient_scope"
    status, _, request_id = await world.ask(minted.secret, None)
    assert status == 200
    row = await world.platform.charge(request_id)
    assert (row["billed"], row["purpose"]) == (True, None)


async def test_the_key_is_kept_for_its_owner_alone_and_made_anew_where_it_is_refused(
    world: World, connection: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    keys = EvalsKey(world.settings)
    file = world.settings.data.evals_key_file
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    kept = file.read_text()
    assert await keys.of("") == kept
    other = await keys.of(kept)
    assert other not in ("", kept)
    assert (await world.ask(other, "wide"))[0] == 200
    assert await connection.fetchval("SELECT count(*) FROM gateway.organizations WHERE internal") == 1
    given = tmp_path / "key"
    given.write_text(f"{other}\n")
    named = EvalsKey(msgspec.structs.replace(world.settings, evals=EvalsConfig(api_key_file=str(given))))
    assert await named.of("") == other
    with pytest.raises(ConfigError, match="does not accept"):
        await named.of(other)


async def test_a_run_asks_as_a_customer_would_and_each_of_its_items_is_one_request(
    world: World, connection: asyncpg.Connection[Any]
) -> None:
    slices = {"one": Numbers("one"), "two": Numbers("two")}
    run_id = await store.queue_run(
        connection, model="wide", pool="narrow", slices=dict.fromkeys(slices, 6), first_seed=100
    )
    assert run_id is not None
    config = EvalsConfig(at_once=4)
    runner = Runner(
        world.database_url, world.platform.url, config, EvalsKey(world.settings).of, lambda name: slices[name]
    )
    async with working(runner):
        run = await ended(connection, store.run, run_id)
    assert (run.status, run.answered, run.error) == (Status.DONE, 12, None)
    ids = [row[0] for row in await connection.fetch("SELECT request_id FROM evals.items WHERE run_id = $1", run_id)]
    assert len(set(ids)) == 12
    rows = [await world.platform.charge(each) for each in ids]
    assert {(row["pool"], row["purpose"], row["outcome"]) for row in rows} == {("narrow", "evals", "exact")}
    answer = await connection.fetchval("SELECT answer FROM evals.items WHERE run_id = $1 LIMIT 1", run_id)
    assert answer.split()[:2] == ["t0", "t1"]


async def test_a_slice_is_refused_by_models_of_the_other_tier(world: World) -> None:
    async with administration(world.settings, "a test") as call:
        with pytest.raises(
            InvalidField, match="'narrow' is of the tier autocomplete, and the slice 'facts' asks"
        ) as said:
            await create_eval_run(call, NewRun(model="narrow", slices=["facts"]))
        assert said.value.param == "slices"
        both = NewComparison(model="wide", slices=["code_exact"], baseline_pool="wide", candidate_pool="narrow")
        with pytest.raises(InvalidField, match="'wide' is of the tier chat, and the slice 'code_exact' asks"):
            await create_eval_comparison(call, both)
        with pytest.raises(InvalidField, match="'wide' has the tier chat"):
            await start_release(call, NewRelease(model="wide", candidate_pool="narrow", slices=["code_exact"]))
        assert (await create_eval_run(call, NewRun(model="narrow", slices=["code_exact"]))).items == 100


async def test_a_key_that_opens_conversations_alone_is_replaced_where_edits_are_asked(
    world: World, connection: asyncpg.Connection[Any]
) -> None:
    await connection.execute(
        "UPDATE gateway.api_keys SET scopes = '{chat,evals}' WHERE id ="
        " (SELECT id FROM gateway.api_keys WHERE name = 'evals' ORDER BY created_at DESC LIMIT 1)"
    )
    run_id = await store.queue_run(connection, model="gaps", slices={"code_exact": 2}, first_seed=100)
    assert run_id is not None
    keys = EvalsKey(world.settings)
    before = await keys.of("")
    runner = Runner(
        world.database_url, world.platform.url, EvalsConfig(at_once=1), keys.of, EvalsConfig().catalogue().find
    )
    async with working(runner):
        run = await ended(connection, store.run, run_id)
    assert (run.status, run.answered, run.error) == (Status.DONE, 2, None)
    assert await keys.of("") != before
    ids = [row[0] for row in await connection.fetch("SELECT request_id FROM evals.items WHERE run_id = $1", run_id)]
    rows = [await world.platform.charge(each) for each in ids]
    assert {(row["endpoint"], row["purpose"], row["billed"]) for row in rows} == {("fim", "evals", False)}
