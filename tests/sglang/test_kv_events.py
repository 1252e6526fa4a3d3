"""The real SGLang's KV events, and the router that reads them: what reached an engine behind its back, what was lost on
the way, and what an engine that was started anew has no longer."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import zmq
import zmq.asyncio

from gateway.wire.prepared import Prepared
from router.core.prefix_index import PrefixIndex
from tests.prefix_chains import length
from tests.real_engine import GUARD_S
from tests.sglang.client import DRIVER
from tests.sglang.conftest import Publisher
from tests.sglang.fleet import SGLangFleet
from tests.waiting import eventually

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(1_500)]
_numbers = itertools.count(1)


class Lossy:
    """Hands an engine's events on to who connects here, unless it is told to lose them."""

    def __init__(self, context: zmq.asyncio.Context, source: str) -> None:
        self._source = context.socket(zmq.SUB)
        self._source.subscribe(b"")
        self._source.connect(source)
        self._out = context.socket(zmq.PUB)
        self.endpoint = f"tcp://127.0.0.1:{self._out.bind_to_random_port('tcp://127.0.0.1', 20_000, 32_000)}"
        self.losing = False
        self.lost_tokens = 0
        """Of prompts and answers, in the events that were lost."""

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            frames = await self._source.recv_multipart()
            if self.losing:
                _, events, *_ = msgspec.msgpack.decode(frames[2])
                self.lost_tokens += sum(len(event["token_ids"]) for event in events if event["type"] == "BlockStored")
            else:
                await self._out.send_multipart(frames)


@contextlib.asynccontextmanager
async def lossy(source: str) -> AsyncIterator[Lossy]:
    with zmq.asyncio.Context() as context:
        relay = Lossy(context, source)
        running = asyncio.create_task(relay.run())
        try:
            yield relay
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            context.destroy(linger=0)


def question() -> list[dict[str, Any]]:
    """One that nobody has asked before, of several blocks."""
    return [{"role": "user", "content": f"{next(_numbers)}: where does the river rise, and where does it end? " * 20}]


def index_of(fleet: SGLangFleet) -> PrefixIndex:
    return fleet.router.dispatcher.fleet.pools["pool"].index


async def behind_its_back(fleet: SGLangFleet, messages: list[dict[str, Any]]) -> Prepared:
    """Asked of the engine itself: the router hears of it by events alone.

    Under a salt of its own: what all chats begin with is published once for each, and who has missed that cannot place
    what builds on it.
    """
    fleet.salt = f"kv-events-{os.urandom(4).hex()}"
    prepared = await fleet.prepared(messages)
    [server] = fleet.servers.values()
    stream = await fleet.connections.open(server.url, DRIVER.generate(prepared.generation, "tiny"))
    while await stream.read():
        pass
    assert stream.status == 200
    return prepared


def held(fleet: SGLangFleet, prepared: Prepared) -> bool:
    """Whether the router takes all of a prompt for cached."""
    return index_of(fleet).match(prepared.chain.hashes).blocks == length(prepared.chain)


async def heard(fleet: SGLangFleet, prepared: Prepared) -> None:
    await eventually(lambda: held(fleet, prepared), GUARD_S)


async def joined(fleet: SGLangFleet) -> tuple[list[dict[str, Any]], Prepared]:
    """A prompt that the router has heard of. A subscriber hears nothing of what was published before it had joined,
    and a publisher does not tell when that is: other prompts are asked until one is heard of."""
    async with asyncio.timeout(GUARD_S):
        while True:
            messages = question()
            prepared = await behind_its_back(fleet, messages)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await heard(fleet, prepared)
                return messages, prepared


async def test_a_chat_that_never_passed_the_router_is_found_in_the_engines_cache(publisher: Publisher) -> None:
    async with SGLangFleet((publisher.process.server,), "prefix", kv_events=publisher.events) as fleet:
        messages, prepared = await joined(fleet)
        assert length(prepared.chain) > 2
        answered = await fleet.chat("plain", messages)
        assert answered.usage.cached_tokens >= length(prepared.chain) * 64
        assert 0 <= answered.usage.cached_tokens - answered.predicted < 64


async def test_events_that_were_lost_are_asked_for_again(publisher: Publisher) -> None:
    server = publisher.process.server
    async with (
        lossy(publisher.events) as relay,
        SGLangFleet((server,), "prefix", kv_events=relay.endpoint, kv_events_replay=publisher.replay) as fleet,
    ):
        _, first = await joined(fleet)
        lost = await losing(relay, fleet)
        # the next message shows that some are missing
        after = await behind_its_back(fleet, question())
        await heard(fleet, lost)
        await heard(fleet, after)
        assert held(fleet, first)


async def test_without_a_replay_a_gap_makes_the_router_forget(publisher: Publisher) -> None:
    server = publisher.process.server
    async with lossy(publisher.events) as relay, SGLangFleet((server,), "prefix", kv_events=relay.endpoint) as fleet:
        _, first = await joined(fleet)
        lost = await losing(relay, fleet)
        after = await behind_its_back(fleet, question())
        await heard(fleet, after)
        assert not held(fleet, first), "what was evicted meanwhile would stay for ever"
        assert not held(fleet, lost)


async def losing(relay: Lossy, fleet: SGLangFleet) -> Prepared:
    """A prompt most of whose events did not come through: what of it comes later builds on what is missing."""
    relay.losing = True
    prepared = await behind_its_back(fleet, question())
    await eventually(lambda: relay.lost_tokens >= prepared.prompt_tokens / 2, GUARD_S)
    relay.losing = False
    return prepared


async def test_an_engine_that_was_started_anew_has_nothing_of_before(publisher: Publisher) -> None:
    async with SGLangFleet((publisher.process.server,), "prefix", kv_events=publisher.events) as fleet:
        _, before = await joined(fleet)
        await publisher.process.kill()
        await publisher.process.start()
        _, after = await joined(fleet)
        assert held(fleet, after)
        assert not held(fleet, before)
