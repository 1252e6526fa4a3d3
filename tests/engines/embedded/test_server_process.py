"""A real engine process begins, publishes and ends; what needs no process of its own is looked at in this one."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import aiohttp
import msgspec
import pytest
import zmq
import zmq.asyncio

from contracts.errors import ConfigError
from engines.embedded.config import EngineConfig
from engines.embedded.server import main
from tests.deployment import free_port
from tests.engines.embedded.engine_process import TOKEN, Process, events, healthy, stream_of
from tests.engines.embedded.served import served
from tests.engines.embedded.tiny import SHIPPED
from tests.waiting import GUARD_S, eventually

CHAT = str(SHIPPED / "slipstream-chat")


async def test_sigterm_lets_streams_finish_and_refuses_new_ones(
    start: Callable[..., Process], session: aiohttp.ClientSession
) -> None:
    """The process also publishes its KV events where `/server_info` says, and its metrics on a port without a token."""
    port = free_port()
    process = start(
        model=CHAT,
        drain_s=GUARD_S,
        metrics={"port": port},
        kv_events={"endpoint": "tcp://127.0.0.1:*", "replay_endpoint": "tcp://127.0.0.1:*", "topic": "kv"},
    )
    await healthy(process)
    await _metrics_are_the_same_on_both_ports(process.url, port)
    await (await stream_of(session, process.url, "req_first", max_tokens=30)).read()
    async with session.get(f"{process.url}/server_info") as info:
        place = (await info.json())["kv_events"]
    assert (place["publisher"], place["topic"], place["block_size"]) == ("zmq", "kv", 16)
    await _events_are_published(place["replay_endpoint"])
    answer = await stream_of(session, process.url, "req_last", max_tokens=1500)
    await answer.content.readline()
    process.child.send_signal(signal.SIGTERM)
    await eventually(lambda: _health_is(session, process.url, 503))
    async with await stream_of(session, process.url, "req_late") as late:
        assert late.status == 503
    chunks = await events(answer)
    assert chunks[-1]["usage"]["completion_tokens"] == 1500
    assert "Traceback" not in process.end()
    assert process.child.returncode == 0


async def _health_is(session: aiohttp.ClientSession, url: str, status: int) -> bool:
    async with session.get(f"{url}/health") as health:
        return health.status == status


async def _metrics_are_the_same_on_both_ports(url: str, port: int) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
            open_text = await answer.text()
        async with session.get(f"{url}/metrics", headers={"authorization": "Bearer metrics"}) as answer:
            guarded_text = await answer.text()

    def names(text: str) -> set[str]:
        return {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE sglang:")}

    assert names(open_text) == names(guarded_text) != set()


async def _events_are_published(replay_endpoint: str) -> None:
    with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as replay:
        replay.connect(replay_endpoint)
        await replay.send_multipart((b"", bytes(8)))
        async with asyncio.timeout(60):
            _, number, payload = await replay.recv_multipart()
    assert number == bytes(8)
    assert msgspec.msgpack.decode(payload)[1][0]["type"] == "BlockStored"


async def test_a_drain_that_takes_too_long_aborts(session: aiohttp.ClientSession) -> None:
    async with served(model=CHAT, drain_s=0) as engine:
        answer = await stream_of(session, engine.url, "req_cut")
        await answer.content.readline()
        engine.service.stop()
        assert (await events(answer))[-2]["choices"][0]["finish_reason"] == "abort"
        await engine.serving


@pytest.fixture
def switch_interval() -> Iterator[None]:
    """As before; `main` sets it for its whole process."""
    before_s = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before_s)


@pytest.mark.usefixtures("switch_interval")
def test_a_broken_model_ends_the_process_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.json: cannot be read"):
        main(EngineConfig(model=str(tmp_path), port=0), TOKEN)


@pytest.mark.usefixtures("switch_interval")
def test_a_port_in_use_is_one_clear_error() -> None:
    with socket.socket() as first:
        first.bind(("127.0.0.1", 0))
        first.listen()
        with pytest.raises(ConfigError, match=r"engine\.port: cannot listen on 127\.0\.0\.1"):
            main(EngineConfig(model=CHAT, port=first.getsockname()[1]), TOKEN)
