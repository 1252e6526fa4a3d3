"""Two tenants' adapters of one name through the whole platform: each is answered as by its own merged model, a third
tenant as if there were none."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec
import openai
import pytest

from contracts.desired_state import Model, Pool, Replica
from contracts.generation import Tier
from tests.deployment import Deployment, deployment
from tests.engines.embedded.engine_process import TOKEN, Process, healthy
from tests.engines.embedded.peft_folder import merge, write_adapter
from tests.engines.embedded.tiny import CONFIG, random_weights, write_model

pytestmark = pytest.mark.nightly
MODEL = "tiny"
BODY: dict[str, Any] = {
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "temperature": 0,
    "max_tokens": 12,
}


class Platform(NamedTuple):
    """A deployment on one embedded engine that holds two adapters, and what the merged models answer."""

    running: Deployment
    engine: Process
    folders: dict[str, Path]
    merged: dict[str, str]


@pytest.fixture(scope="module")
async def platform(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Platform]:
    folder = tmp_path_factory.mktemp("adapters")
    model = write_model(folder / MODEL, CONFIG, random_weights(CONFIG))
    names = ("acme", "bolt", "third")
    folders = {name: write_adapter(folder / name, model, seed=seed) for seed, name in enumerate(names)}
    merged = {}
    for name, adapter in folders.items():
        with running_engine(model=str(merge(model, adapter, folder / f"merged-{name}")), name=MODEL) as reference:
            merged[name] = await answer_of(reference)
    with running_engine(model=str(model), name=MODEL, lora={"max_loaded": 2}) as engine:
        merged["none"] = await answer_of(engine)
        pool = Pool("tiny", "embedded", (Replica("tiny-0", engine.url),), max_adapters=2)
        served = Model(MODEL, Tier.CHAT, "tiny", 512, tokenizer=str(model))
        environment = {
            "SLIPSTREAM_MODELS": msgspec.json.encode([served]).decode(),
            "SLIPSTREAM_POOLS": msgspec.json.encode([pool]).decode(),
        }
        async with deployment(options=["--gateways", "2"], environment=environment, token=TOKEN) as running:
            yield Platform(running, engine, folders, merged)


@contextlib.contextmanager
def running_engine(**config: Any) -> Any:
    process = Process(**config)
    try:
        yield process
    finally:
        process.child.kill()
        process.child.communicate()


async def answer_of(engine: Process) -> str:
    """Asked past the platform."""
    await healthy(engine)
    async with openai.AsyncOpenAI(base_url=f"{engine.url}/v1", api_key=TOKEN, max_retries=0) as client:
        return await answer(client, MODEL)


async def answer(client: openai.AsyncOpenAI, model: str) -> str:
    made = await client.chat.completions.create(model=model, **BODY)
    assert made.model == model
    return made.choices[0].message.content or ""


def client_of(platform: Platform, key: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{platform.running.url}/v1", api_key=key, max_retries=0)


async def add(platform: Platform, organization: str, name: str, folder: Path | str) -> None:
    await platform.running.command(
        "customers", "adapters", "add", MODEL, name, str(folder), "--organization", organization
    )


async def test_each_tenant_has_its_own_and_a_third_has_none(platform: Platform) -> None:
    running = platform.running
    keys = {name: await running.make_key("--organization", name) for name in ("acme", "bolt", "cole")}
    for name in ("acme", "bolt"):
        await add(platform, name, "support", platform.folders[name])
    clients = {name: client_of(platform, key) for name, key in keys.items()}
    async with contextlib.AsyncExitStack() as stack:
        for one in clients.values():
            await stack.enter_async_context(one)
        # the first requests for an adapter come together, at two gateways
        asked = ["acme"] * 6 + ["bolt"] * 6
        answers = await asyncio.gather(*(answer(clients[name], f"{MODEL}:support") for name in asked))
        assert answers == [platform.merged[name] for name in asked]
        assert len(set(platform.merged.values())) == len(platform.merged)
        assert await answer(clients["acme"], MODEL) == platform.merged["none"]
        assert [one.id async for one in clients["acme"].models.list()] == [MODEL, f"{MODEL}:support"]
        assert [one.id async for one in clients["cole"].models.list()] == [MODEL]
        with pytest.raises(openai.NotFoundError) as somebody_elses:
            await answer(clients["cole"], f"{MODEL}:support")
        with pytest.raises(openai.NotFoundError) as nobodys:
            await answer(clients["cole"], f"{MODEL}:nobody")
        assert str(somebody_elses.value).replace("support", "nobody") == str(nobodys.value)
    rows = await told(running, {("acme", "support"): 6, ("bolt", "support"): 6, ("acme", None): 1})
    assert all(row["model"] == MODEL and row["billed"] for row in rows)


async def told(running: Deployment, expected: dict[tuple[str, str | None], int]) -> list[dict[str, Any]]:
    """The ledger's rows, once there are so many of each organization and adapter."""
    async with asyncio.timeout(30), running.database() as connection:
        while True:
            rows = [
                dict(row)
                for row in await connection.fetch(
                    "SELECT usage_events.*, organizations.name AS organization FROM gateway.usage_events"
                    " JOIN gateway.organizations ON organizations.id = organization_id"
                )
            ]
            counted: dict[tuple[str, str | None], int] = {}
            for row in rows:
                key = row["organization"], row["adapter"]
                counted[key] = counted.get(key, 0) + 1
            if counted == expected:
                return rows
            await asyncio.sleep(0.1)


async def test_a_removed_one_is_refused_and_a_broken_one_is_no_fault_of_the_engines(platform: Platform) -> None:
    running = platform.running
    async with client_of(platform, await running.make_key("--organization", "dune")) as client:
        await add(platform, "dune", "broken", "/nowhere/at-all")
        with pytest.raises(openai.InternalServerError) as failed:
            await answer(client, f"{MODEL}:broken")
        assert failed.value.code == "adapter_unavailable"
        assert "/nowhere" not in str(failed.value)
        await add(platform, "dune", "third", platform.folders["third"])
        # the engine holds two of others by now: one of them gives way
        assert await answer(client, f"{MODEL}:third") == platform.merged["third"]
        await running.command("customers", "adapters", "remove", f"{MODEL}:third", "--organization", "dune")
        async with asyncio.timeout(5):
            while True:
                try:
                    await answer(client, f"{MODEL}:third")
                except openai.NotFoundError:
                    break
        assert await answer(client, MODEL) == platform.merged["none"]


async def test_an_engine_that_has_lost_one_is_told_to_load_it_again(platform: Platform) -> None:
    running = platform.running
    async with client_of(platform, await running.make_key("--organization", "eden")) as client:
        await add(platform, "eden", "own", platform.folders["third"])
        assert await answer(client, f"{MODEL}:own") == platform.merged["third"]
        async with aiohttp.ClientSession(headers={"authorization": f"Bearer {TOKEN}"}) as session:
            async with session.get(f"{platform.engine.url}/v1/models") as response:
                loaded = [card["id"] for card in (await response.json())["data"] if card.get("parent")]
            for name in loaded:
                body = {"lora_name": name}
                async with session.post(f"{platform.engine.url}/unload_lora_adapter", json=body) as response:
                    assert response.status == 200
        assert await answer(client, f"{MODEL}:own") == platform.merged["third"]
