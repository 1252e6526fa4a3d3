"""The real SGLang's KV events, and the router that reads them: what reached an engine behind its back is known too."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest

from gateway.wire.prepared import Prepared
from tests.prefix_chains import length
from tests.router.fakes import GUARD_S
from tests.sglang.fleet import DRIVER, SGLangFleet
from tests.sglang.server import MODELS, free_port, sglang_server

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(900)]


def question(number: int) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"{number}: where does the river rise, and where does it end? " * 20}]


async def test_a_chat_that_never_passed_the_router_is_found_in_the_engines_cache() -> None:
    port = free_port()
    settings = json.dumps({"publisher": "zmq", "topic": "kv-events", "endpoint": f"tcp://*:{port}"})
    async with (
        sglang_server(MODELS / "slipstream-chat", "tiny", "engine-token", "--kv-events-config", settings) as server,
        SGLangFleet((server,), "prefix", kv_events=f"tcp://127.0.0.1:{port}") as fleet,
    ):
        index = fleet.router.dispatcher.fleet.pools["pool"].index

        async def asked_behind_its_back(number: int) -> Prepared:
            prepared = await fleet.prepared(question(number))
            stream = await fleet.connections.open(server.url, DRIVER.generate(prepared.generation, "tiny"))
            while await stream.read():
                pass
            return prepared

        async with asyncio.timeout(GUARD_S):
            for number in itertools.count():
                prepared = await asked_behind_its_back(number)
                # a subscriber hears nothing of what was published before it had joined: the next is another prompt
                await asyncio.sleep(0.2)
                if index.match(prepared.chain.hashes).blocks == length(prepared.chain):
                    break
        assert length(prepared.chain) > 2
        answered = await fleet.chat("plain", question(number))
        assert answered.usage.cached_tokens >= length(prepared.chain) * 64
        assert 0 <= answered.usage.cached_tokens - answered.predicted < 64
