"""Class and share through the whole platform, before an engine that serves one request at a time: set by command and
over the admin API, asked for by `service_tier`, told by explain and trace. Counted is who was served in which order."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import httpx2
import msgspec
import openai
import pytest

from contracts.desired_state import Model, Pool, Replica
from contracts.generation import Tier
from infra.local.folders import DataFolder
from tests.deployment import Deployment, deployment
from tests.e2e.failures.processes import until
from tests.fakes.process import FakeEngineProcess, fake_engine

pytestmark = pytest.mark.timeout(400)
TOKEN = "deployment-token-of-the-tests"
HOLDER = "the one that is served"
Stream = openai.AsyncStream[openai.types.chat.ChatCompletionChunk]


class Place:
    """The platform before one engine with one place."""

    def __init__(self, platform: Deployment, engine: FakeEngineProcess) -> None:
        self.platform = platform
        self.engine = engine
        self.served: list[str] = []
        """Names of the requests, in the order in which they were answered."""
        self.request_ids: dict[str, str] = {}
        self.clients: dict[str, openai.AsyncOpenAI] = {}
        self.tiers: dict[str, str | None] = {}
        """What the answers say in `service_tier`, by name."""

    def client(self, key: str) -> openai.AsyncOpenAI:
        """One for each key."""
        if key not in self.clients:
            self.clients[key] = openai.AsyncOpenAI(
                base_url=f"{self.platform.url}/v1", api_key=key, max_retries=0, timeout=120.0
            )
        return self.clients[key]

    async def put_share(self, organization: str, share: int) -> None:
        """Over the admin API, by the owner whom `up` made."""
        found = re.search(r"sk-slip-admin-[0-9A-Za-z]+", self.platform.output)
        assert found is not None, self.platform.output
        headers = {"authorization": f"Bearer {found.group()}"}
        async with httpx2.AsyncClient(base_url=f"{self.platform.url}/admin/v1", headers=headers) as http:
            listed = (await http.get("/organizations")).json()["data"]
            (id_,) = (one["id"] for one in listed if one["name"] == organization)
            answer = await http.put(f"/organizations/{id_}/priorities/chat", json={"share": share})
            assert answer.status_code == 200, answer.text

    async def hold(self, key: str) -> Stream:
        """Take the only place until the stream is closed."""
        client = self.client(key)

        async def answers() -> bool:
            try:
                await client.chat.completions.create(model="hosted", messages=[{"role": "user", "content": "Hello"}])
            except openai.APIError:
                return False
            return True

        await until(answers)
        await self.engine.control(hang_after_tokens=1)
        stream = await client.chat.completions.create(
            model="hosted", messages=[{"role": "user", "content": HOLDER}], stream=True
        )
        assert await anext(stream)
        await self.engine.control(hang_after_tokens=-1)
        return stream

    async def ask(self, name: str, key: str, tier: str | None = None) -> None:
        """One request, to its end."""
        more = {} if tier is None else {"service_tier": tier}
        answer = await self.client(key).chat.completions.with_raw_response.create(
            model="hosted", messages=[{"role": "user", "content": "The same for all"}], extra_body=more
        )
        self.served.append(name)
        self.request_ids[name] = answer.headers["x-request-id"]
        self.tiers[name] = answer.parse().service_tier

    async def waiting(self, count: int) -> None:
        """Return once so many wait in the router."""
        listed = msgspec.json.decode(DataFolder(self.platform.data).prometheus_targets.read_bytes())
        (target,) = (one["targets"][0] for one in listed if one["labels"]["instance"] == "router")
        async with httpx2.AsyncClient() as http:

            async def holds() -> bool:
                page = (await http.get(f"http://{target}/metrics")).text
                queued = (line for line in page.splitlines() if line.startswith("slipstream_router_queued{"))
                return sum(float(line.rpartition(" ")[2]) for line in queued) == count

            await until(holds)


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with fake_engine(token=TOKEN) as engine:
        pool = Pool("hosted", "openai", (Replica("hosted-1", engine.url),), 1)
        environment = {
            "SLIPSTREAM_MODELS": msgspec.json.encode([Model("hosted", Tier.CHAT, pool.name, 4_096)]).decode(),
            "SLIPSTREAM_POOLS": msgspec.json.encode([pool]).decode(),
            "SLIPSTREAM_ROUTER__CONCURRENCY__LEARN": "false",
            "SLIPSTREAM_ROUTER__CONCURRENCY__INITIAL": "1",
            "SLIPSTREAM_GATEWAY__QUEUE_DEADLINE_S": '{"chat": 100, "autocomplete": 100}',
        }
        async with deployment(environment=environment, token=TOKEN) as platform:
            made = Place(platform, engine)
            yield made
            await asyncio.gather(*(client.close() for client in made.clients.values()))


async def test_interactive_overtakes_offline_and_three_shares_are_given_three_times_as_much(place: Place) -> None:
    platform = place.platform
    holder = platform.key
    limits = ("--requests-per-minute", "10000", "--tokens-per-minute", "1000000", "--max-concurrency", "100")
    names = "people", "batch", "large", "small"
    keys = await asyncio.gather(*(platform.make_key("--organization", name, *limits) for name in names))
    people, batch, large, small = keys
    await platform.command("limits", "set", "--organization", "people", "--class", "interactive")
    await platform.command("limits", "set", "--organization", "batch", "--project", "default", "--class", "offline")
    await place.put_share("large", 300)
    told = await platform.command("limits", "list", "--organization", "large")
    assert "share 300" in told, told
    sides = ("small", small), ("large", large)
    async with asyncio.timeout(300), asyncio.TaskGroup() as group:
        stream = await place.hold(holder)
        asked = [
            *((f"batch {number}", batch, None) for number in range(2)),
            *((f"{name} {number}", key, None) for number in range(6) for name, key in sides),
            ("flex", people, "flex"),
            ("people", people, "priority"),
        ]
        for count, (name, key, tier) in enumerate(asked, 1):
            group.create_task(place.ask(name, key, tier))
            await place.waiting(count)
        assert not place.served
        await stream.close()
    assert place.served[0] == "people", place.served
    assert sorted(place.served[-3:]) == ["batch 0", "batch 1", "flex"], place.served
    contested = [name.split()[0] for name in place.served[1:9]]
    assert (contested.count("large"), contested.count("small")) == (6, 2), place.served
    assert (place.tiers["flex"], place.tiers["people"], place.tiers["batch 0"]) == ("flex", "priority", None)
    explained = await platform.command("router", "explain", place.request_ids["large 0"])
    assert "class: standard; share 3, of its project 1" in explained, explained
    assert "offline" in await platform.command("router", "explain", place.request_ids["batch 0"])
    for name, told in (("people", "interactive"), ("flex", "offline")):
        assert told in await platform.command("requests", "show", place.request_ids[name])
