"""Requests before an upstream that says nothing of itself, with the real router and the real pipeline, over HTTP."""

from __future__ import annotations

import asyncio

import pytest

from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import body, harness
from tests.gateway.serving.test_with_router import routed
from tests.waiting import eventually

STREAMS = 200


@pytest.mark.nightly
async def test_two_hundred_streams_all_begin_before_one_of_them_has_ended() -> None:
    """Nobody waits in front of an upstream that has nothing to do: places come with first tokens, not with answers'
    ends. That a busy machine is late with first tokens must not matter, so the upstream itself takes a second."""
    async with (
        harness(engines=1, driver="openai") as platform,
        routed(platform, max_concurrency=0) as (server, router),
    ):
        platform.script(ttft_s=1.0, tokens=4, hang_after_tokens=1)
        clients = [Client() for _ in range(STREAMS)]
        asked = body(stream=True, max_tokens=100)
        serving = [asyncio.create_task(platform.serve(client, asked)) for client in clients]
        for client in clients:
            await client.reads(b"t0")
        (replica,) = server.dispatcher.fleet.replicas.values()
        assert replica.leases == STREAMS
        assert replica.max_concurrency >= STREAMS
        for client in clients:
            client.leave()
        await asyncio.gather(*serving)
        assert router.book.live == {}
        await eventually(lambda: replica.leases == 0)


async def test_an_upstream_that_refuses_is_given_less_and_the_client_is_told_to_come_back() -> None:
    async with (
        harness(engines=1, driver="openai") as platform,
        routed(platform, max_concurrency=0) as (server, _),
    ):
        platform.script(hang_after_tokens=1)
        clients = [Client() for _ in range(6)]
        asked = body(stream=True, max_tokens=100)
        serving = [asyncio.create_task(platform.serve(client, asked)) for client in clients]
        for client in clients:
            await client.reads(b"t0")
        platform.script(status=429, message="Rate limit reached.")
        refused = Client()
        await platform.serve(refused, asked)
        assert refused.answer.status == 503
        (replica,) = server.dispatcher.fleet.replicas.values()
        await eventually(lambda: replica.leases == len(clients))
        assert replica.max_concurrency == len(clients)
        assert replica.limited_by == "measured: the upstream refused a request because it was full"
        for client in clients:
            client.leave()
        await asyncio.gather(*serving)
