"""What makes alerts fire, done by customers of a running deployment and by their servers."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import aiohttp

from control.webhooks.outbox import EventType, emit
from tests.control.api.receiver import receiver
from tests.e2e.failures.alert_world import Causes, World, again_and_again, stopped
from tests.e2e.failures.engine_place import end_on_engine
from tests.e2e.failures.processes import process_ids
from tests.waiting import eventually

CAUSES = Causes()
SLOW_READERS = 4
STANDS_STILL_S = 0.5
LONG_TOKENS = 3_000
"""Some 700 kB of events: more than the sockets between a gateway and a client that reads nothing take."""
SMALL_BYTES = 4_096
SMALL_SEGMENT_BYTES = 536
"""Told before connecting: by it Linux chooses how much it takes of what the other side sends."""
DELAYED_SETTLEMENTS = 100
"""`gateway.limits.max_delayed_settlements`, at its least."""
USUAL_HOURS = """
INSERT INTO gateway.prefix_shares
       (organization_id, hour, model, endpoint, template, cause, part, requests, prompt_tokens, reusable_tokens,
        cached_tokens)
SELECT id, date_trunc('hour', now()) - make_interval(hours => number), 'wide', '/v1/chat/completions', 'usual',
       'whole', '', 100, 100000, 90000, 90000
  FROM gateway.organizations, generate_series(2, 6) AS number WHERE name = 'clerks'
"""
RULES = "Answer from the handbook alone, in whole sentences. " * 12


def chat(model: str, key: str, **fields: Any) -> bytes:
    """A chat request as it goes over the wire."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Go on."}], **fields}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@CAUSES.of("ClientsStall")
async def clients_read_late(world: World) -> AsyncIterator[None]:
    request = chat("fake", world.running.key, max_tokens=LONG_TOKENS, stream=True)

    async def read_late() -> None:
        loop = asyncio.get_running_loop()
        with socket.socket() as reader:
            reader.setblocking(False)
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BYTES)
            reader.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SMALL_SEGMENT_BYTES)
            await loop.sock_connect(reader, ("127.0.0.1", world.running.port))
            await loop.sock_sendall(reader, request)
            await asyncio.sleep(STANDS_STILL_S)  # what such a client does
            while await loop.sock_recv(reader, 1 << 16):
                pass

    await world.script(tokens=LONG_TOKENS)
    try:
        async with again_and_again(read_late, SLOW_READERS):
            yield
    finally:
        await world.script(reset=True)


@CAUSES.of("SettlementsAreDropped")
async def streams_end_while_valkey_stands_still(world: World) -> AsyncIterator[None]:
    """More than a gateway keeps settlements for."""
    streams = DELAYED_SETTLEMENTS + 50
    key = await world.running.make_key("--organization", "limited", "--max-concurrency", str(2 * streams))
    messages = [{"role": "user", "content": "Go on."}]
    body = {"model": "wide", "messages": messages, "stream": True, "max_tokens": 100}
    engine = world.wide.engine
    await engine.control(reset=True, tokens=LONG_TOKENS, hang_after_tokens=1)
    connections = aiohttp.TCPConnector(limit=0)
    headers = {"authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession(world.running.url, connector=connections, headers=headers) as session:

        async def stream() -> None:
            async with session.post("/v1/chat/completions", json=body) as answer:
                assert answer.status == 200, await answer.text()
                await answer.read()

        reading = [asyncio.create_task(stream()) for _ in range(streams)]
        try:
            records = await engine.wait(tokens=streams)
            async with stopped(process_ids(world.running)["valkey"]):
                for record in records:
                    await end_on_engine(engine, record["rid"])
                await asyncio.gather(*reading)
                yield
        finally:
            for task in reading:
                task.cancel()
            await engine.control(reset=True)


@CAUSES.of("RequestTracesDropped")
async def more_is_refused_than_is_kept_while_a_table_is_locked(world: World) -> AsyncIterator[None]:
    """As a change of the table, or its VACUUM FULL, does. Without PostgreSQL no key is known, and nothing is traced."""
    key = await world.running.make_key("--organization", "hasty", "--requests-per-minute", "1")
    body = {"model": "wide", "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 1}
    headers = {"authorization": f"Bearer {key}"}
    async with (
        aiohttp.ClientSession(world.running.url, headers=headers) as session,
        world.running.database() as owner,
        owner.transaction(),
    ):
        await owner.execute("LOCK TABLE gateway.request_traces")

        async def ask() -> None:
            async with session.post("/v1/chat/completions", json=body) as answer:
                assert answer.status in (200, 429), await answer.text()

        async with again_and_again(ask, 16):
            yield


@CAUSES.of("WebhooksFail")
async def a_customers_server_fails(world: World) -> AsyncIterator[None]:
    async with receiver() as server, world.running.database() as connection:
        server.answers = [500] * 10_000
        await world.running.command("customers", "webhooks", "create", server.url, "--organization", "demo")
        organization = await connection.fetchval("SELECT id FROM gateway.organizations WHERE name = 'demo'")

        async def tell() -> None:
            """Another event, once the one before has come."""
            seen = len(server.came)
            await emit(connection, organization, EventType.BUDGET_EXHAUSTED, {})

            async def came() -> bool:
                return len(server.came) > seen

            await eventually(came)

        try:
            async with again_and_again(tell):
                yield
        finally:
            await world.running.command("customers", "webhooks", "remove", server.url, "--organization", "demo")


@CAUSES.of("ATenantsPromptsAreReusedByHalf")
async def prompts_begin_with_the_time(world: World) -> AsyncIterator[None]:
    """The hours before, of which there must be three, are written into the table that hours are added up in."""
    key = await world.running.make_key("--organization", "clerks")
    async with world.running.database() as connection:
        await connection.execute(USUAL_HOURS)
    headers = {"authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession(world.running.url, headers=headers) as session:

        async def ask() -> None:
            system = f"You are a clerk. It is {datetime.now(UTC):%H:%M:%S.%f}. {RULES}"
            messages = [{"role": "system", "content": system}, {"role": "user", "content": "Who may sign?"}]
            async with session.post("/v1/chat/completions", json={"model": "wide", "messages": messages}) as answer:
                assert answer.status == 200, await answer.text()

        async with again_and_again(ask):
            yield
