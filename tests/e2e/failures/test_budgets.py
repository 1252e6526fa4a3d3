"""A budget through a whole deployment: Valkey flushed, a gateway killed, and what is spent is what the ledger says."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest
import redis

from infra.local.folders import DataFolder
from tests.deployment import deployment, fake_fleet
from tests.e2e.failures.engine_place import EnginePlace
from tests.e2e.failures.processes import all_ready, fresh_connections, kill
from tests.waiting import eventually

MESSAGES: list[Any] = [{"role": "user", "content": "Hello."}]
TOKEN = "token-of-the-budgets"
BUDGET_MICRO = 4_000_000
PRICE = (
    "INSERT INTO gateway.prices (model, valid_from, input_micro, cached_input_micro, cache_write_micro, output_micro)"
)
SPENT = "SELECT coalesce(sum(amount_micro), 0)::bigint FROM gateway.usage_events WHERE organization_id = $1"


@pytest.mark.nightly
async def test_a_budget_is_spent_to_what_the_ledger_says() -> None:
    place = EnginePlace(TOKEN)
    await place.start()
    environment = {
        **fake_fleet(place.engine.url, driver="embedded"),
        "SLIPSTREAM_LOCAL__RESTART_FIRST_S": "0.1",
        "SLIPSTREAM_GATEWAY__LIMITS__LEASE_S": "2",
    }
    async with deployment(options=["--gateways", "2"], environment=environment, token=TOKEN) as running:
        await place.engine.control(tokens=10)
        spender, pauper = await running.make_key("--name", "spender"), await running.make_key("--name", "pauper")
        async with running.database() as database:
            organization = await database.fetchval("SELECT id FROM gateway.organizations WHERE name = 'demo'")
            # a thousand a token of output
            await database.execute(f"{PRICE} VALUES ('fake', now() - interval '1 minute', 0, 0, 0, 1000000000)")
            await database.execute(
                "INSERT INTO gateway.limits (level, subject_id, money_micro_per_month) VALUES ('organization', $1, $2)",
                organization,
                BUDGET_MICRO,
            )
            await database.execute(
                "INSERT INTO gateway.limits (level, subject_id, money_micro_per_month)"
                " SELECT 'key', id, 0 FROM gateway.api_keys WHERE name = 'pauper'"
            )

            async def ask(key: str) -> openai.APIStatusError | None:
                async with openai.AsyncOpenAI(
                    base_url=f"{running.url}/v1", api_key=key, max_retries=0, http_client=fresh_connections()
                ) as client:
                    try:
                        await client.chat.completions.create(model="fake", messages=MESSAGES, max_tokens=20)
                    except openai.APIStatusError as error:
                        return error
                return None

            async def priced() -> bool:  # whichever gateway is met
                errors = [await ask(pauper) for _ in range(8)]
                return all(error is not None and error.code == "insufficient_quota" for error in errors)

            await eventually(priced)
            seen: dict[str, int] = {}
            exhausted = asyncio.Event()

            async def spend() -> None:
                while not exhausted.is_set():
                    try:
                        error = await ask(spender)
                    except openai.APIConnectionError:
                        continue  # the gateway that was killed
                    code = "served" if error is None else str(error.code)
                    seen[code] = seen.get(code, 0) + 1
                    if error is not None and error.code == "insufficient_quota":
                        body: Any = error.body
                        if body["limit"]["frees_in_ms"] > 1_000:  # not merely held by what runs
                            exhausted.set()

            spenders = [asyncio.create_task(spend()) for _ in range(8)]

            async def served(count: int) -> bool:
                return seen.get("served", 0) > count

            await eventually(lambda: served(60))
            with redis.Redis(unix_socket_path=str(DataFolder(running.data).valkey_socket)) as store:
                store.flushall()
            await eventually(lambda: served(150))
            await kill(running, "gateway-1")
            await asyncio.wait_for(asyncio.gather(*spenders), 120)
            await all_ready(running)

            # what running requests held is given back, the dead gateway's too; what is left is the ledger's rest
            async def agrees() -> bool:
                error = await ask(spender)
                if error is None or error.code != "insufficient_quota":
                    return False
                body: Any = error.body
                spent = await database.fetchval(SPENT, organization)
                return bool(body["limit"]["remaining"] == BUDGET_MICRO - spent)

            await eventually(agrees)
            spent = await database.fetchval(SPENT, organization)
            assert BUDGET_MICRO - 20_000 < spent <= BUDGET_MICRO, (spent, seen)
            crossings = await database.fetch(
                "SELECT percent FROM gateway.budget_crossings WHERE subject_id = $1 ORDER BY percent", organization
            )
            assert [row["percent"] for row in crossings][:2] == [50, 80]
            told = await database.fetchval(
                "SELECT count(*) FROM gateway.webhook_events WHERE organization_id = $1 AND data->>'refused' = 'false'",
                organization,
            )
            assert told == len(crossings)
    await place.stop()
