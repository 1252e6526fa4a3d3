"""A real engine process begins, publishes and ends."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import aiohttp
import msgspec
import zmq
import zmq.asyncio

from tests.engines.embedded.engine_process import Process, events, healthy, stream_of
from tests.engines.embedded.tiny import SHIPPED


async def test_sigterm_lets_streams_finish_and_refuses_new_ones(
    start: Callable[..., Process], session: aiohttp.ClientSession
) -> None:
    process = start(model=str(SHIPPED / "slipstream-chat"), drain_s=60)
    await healthy(process)
    answer = await stream_of(session, process.url, "req_last", max_tokens=1500)
    await answer.content.readline()
    process.child.send_signal(signal.SIGTERM)
    async with asyncio.timeout(30):
        while True:
            async with session.get(f"{process.url}/health") as health:
                if health.status == 503:
                    break
    async with await stream_of(session, process.url, "req_late") as late:
        assert late.status == 503
    chunks = await events(answer)
    assert chunks[-1]["usage"]["completion_tokens"] == 1500
    assert "Traceback" not in process.end()
    assert process.child.returncode == 0


async def test_a_drain_that_takes_too_long_aborts(
    start: Callable[..., Process], session: aiohttp.ClientSession
) -> None:
    process = start(model=str(SHIPPED / "slipstream-chat"), drain_s=0)
    await healthy(process)
    answer = await stream_of(session, process.url, "req_cut")
    await answer.content.readline()
    process.child.send_signal(signal.SIGTERM)
    assert (await events(answer))[-2]["choices"][0]["finish_reason"] == "abort"
    process.end()


async def test_kv_events_are_published_where_server_info_says(
    start: Callable[..., Process], session: aiohttp.ClientSession
) -> None:
    process = start(
        model=str(SHIPPED / "slipstream-chat"),
        kv_events={"endpoint": "tcp://127.0.0.1:*", "replay_endpoint": "tcp://127.0.0.1:*", "topic": "kv"},
    )
    await healthy(process)
    await (await stream_of(session, process.url, "req_events", max_tokens=30)).read()
    async with session.get(f"{process.url}/server_info") as answer:
        place = (await answer.json())["kv_events"]
    assert (place["publisher"], place["topic"], place["block_size"]) == ("zmq", "kv", 16)
    with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as replay:
        replay.connect(place["replay_endpoint"])
        await replay.send_multipart((b"", bytes(8)))
        async with asyncio.timeout(30):
            _, number, payload = await replay.recv_multipart()
    assert number == bytes(8)
    assert msgspec.msgpack.decode(payload)[1][0]["type"] == "BlockStored"
    process.child.send_signal(signal.SIGTERM)
    assert "Traceback" not in process.end()
    assert process.child.returncode == 0


def test_a_broken_model_ends_the_process_with_a_sentence(start: Callable[..., Process], tmp_path: Path) -> None:
    process = start(model=str(tmp_path))
    log = process.end()
    assert process.child.returncode != 0
    assert "config.json: cannot be read" in log


def test_a_port_in_use_is_one_clear_error(start: Callable[..., Process]) -> None:
    first = start(model=str(SHIPPED / "slipstream-chat"))
    second = start(model=str(SHIPPED / "slipstream-chat"), port=int(first.url.rpartition(":")[2]))
    assert "engine.port: cannot listen on 127.0.0.1" in second.end()
