"""Class and share through the whole platform, before an engine that serves one request at a time: set by command and
over the admin API, asked for by `service_tier`, told by explain and trace. Counted is who was served in which order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from contracts.desired_state import Model, Pool, Replica
from contracts.generation import Tier
from tests.deployment import Deployment, deployment
from tests.e2e.one_place import OnePlace, Stream
from tests.fakes.process import FakeEngineProcess, fake_engine

TOKEN = "deployment-token-of-the-tests"


class Place(OnePlace):
    """The engine is a fake one."""

    def __init__(self, platform: Deployment, engine: FakeEngineProcess) -> None:
        super().__init__(platform, "hosted")
        self.engine = engine

    async def hold(self, key: str, **asked: Any) -> Stream:
        """See `OnePlace.hold`; the engine says one token and then nothing."""
        await self.engine.control(hang_after_tokens=1)
        stream = await super().hold(key, **asked)
        await self.engine.control(hang_after_tokens=-1)
        return stream


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
    await platform.command("customers", "limits", "set", "--organization", "people", "--class", "interactive")
    await platform.command(
        "customers", "limits", "set", "--organization", "batch", "--project", "default", "--class", "offline"
    )
    await place.put_share("large", 300)
    told = await platform.command("customers", "limits", "list", "--organization", "large")
    assert "share 300" in told, told
    sides = ("small", small), ("large", large)
    async with asyncio.timeout(300), asyncio.TaskGroup() as group:
        await place.answers(holder)
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
    assert "class: standard; share 300, of its project 100" in explained, explained
    assert "offline" in await platform.command("router", "explain", place.request_ids["batch 0"])
    for name, told in (("people", "interactive"), ("flex", "offline")):
        assert told in await platform.command("requests", "show", place.request_ids[name])
