"""What the forwarder tells of a stream whose engine, client and clock do what the test says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest

from gateway.observability.measurement import Measurement
from gateway.serving.stream_timing import StreamTiming
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import GUARD_S, body, harness
from tests.gateway.serving.stepped_engine import SteppedEngine, stepped_engine


class Stage:
    """One stream under way."""

    def __init__(self, engine: SteppedEngine, client: Client) -> None:
        self.engine = engine
        self.client = client
        self.now_s = 1_000.0
        self.told: asyncio.Queue[str] = asyncio.Queue()
        self.measured: Measurement

    async def at(self, now_ms: float, *texts: str, ends: bool = False, tokens: int = 0) -> None:
        """The engine writes at that time, and the gateway has heard of it."""
        self.now_s = 1_000.0 + now_ms / 1e3
        await self.engine.say(*texts, ends=ends, tokens=tokens)
        await self.told.get()

    def timing(self) -> StreamTiming:
        """One that says when it was told of an arrival."""
        told = self.told

        class Heard(StreamTiming):
            def first_text(self, now_s: float) -> None:
                super().first_text(now_s)
                told.put_nowait("first text")

            def arrived(self, now_s: float) -> None:
                super().arrived(now_s)
                told.put_nowait("arrived")

        return Heard()


@contextlib.asynccontextmanager
async def stage(
    monkeypatch: pytest.MonkeyPatch, *, stream: bool = True, client: Client | None = None
) -> AsyncIterator[Stage]:
    """`measured` is there behind it."""
    async with stepped_engine() as (engine, place), harness(engines=0) as platform, asyncio.timeout(GUARD_S):
        platform.router.engines = (place,)
        on = Stage(engine, client or Client())
        monkeypatch.setattr("gateway.serving.stream.time", SimpleNamespace(monotonic=lambda: on.now_s))
        monkeypatch.setattr("gateway.serving.attempt.StreamTiming", on.timing)
        task = asyncio.create_task(platform.serve(on.client, body(stream=stream)))
        yield on
        on.measured = (await task).measurement


@pytest.mark.parametrize("stream", [True, False])
async def test_gaps_are_between_arrivals(monkeypatch: pytest.MonkeyPatch, stream: bool) -> None:
    async with stage(monkeypatch, stream=stream) as on:
        await on.at(0, "a")
        await on.at(10, "b")
        await on.at(190, "c", "d")
        await on.at(200, "e", ends=True, tokens=5)
    found = on.measured
    assert (found.itl_max_ms, found.gaps_over_100ms, found.tpot_ms) == (180.0, 1, 50.0)
    assert (found.replica_id, found.pool, found.completion_tokens) == ("stepped-0", "p", 5)


async def test_a_part_of_an_event_and_a_comment_are_no_arrivals(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage(monkeypatch) as on:
        await on.at(0, "a")
        on.now_s += 0.05
        await on.engine.write(b"e\r\n: still here\n\n\r\n")
        on.now_s += 0.05
        await on.engine.write(b"6\r\ndata: \r\n")
        await on.engine.write(b'6\r\n{"id":\r\n')
        rest = b'"r","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":'
        rest += b'{"content":"b"},"finish_reason":null}]}\n\n'
        on.now_s += 0.05
        await on.engine.write(b"%x\r\n%b\r\n" % (len(rest), rest))
        await on.told.get()
        await on.at(160, ends=True, tokens=3)
    assert on.measured.itl_max_ms == pytest.approx(150.0)
    assert on.told.empty()


async def test_a_client_that_stands_still_is_a_stall_and_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine wrote on meanwhile, every 10 ms."""
    async with stage(monkeypatch) as on:
        await on.at(0, "a")
        await on.at(10, "b")
        on.client.stop_reading()
        await on.at(20, "c")
        await on.client.reads(b'"c"')
        await asyncio.sleep(0)  # the turn in which the task hears that the client is full
        await on.at(30, "d")
        await on.at(40, "e")
        await on.at(50, "f", ends=True, tokens=6)
        on.now_s = 1_001.0
        on.client.read_on()
    found = on.measured
    assert found.client_stall_ms == pytest.approx(980.0)
    assert (found.itl_max_ms, found.gaps_over_100ms, found.tpot_ms) == (10.0, 0, 10.0)
    assert on.client.answer.complete


class ReadsOnAtOnce(Client):
    """Reads on in the very turn of the loop in which it was found to be slow."""

    def _written(self, data: bytes) -> None:
        super()._written(data)
        if b'"c"' in data:
            asyncio.get_running_loop().call_soon(self.read_on)


async def test_a_client_that_reads_on_before_the_task_wakes_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage(monkeypatch, client=ReadsOnAtOnce()) as on:
        await on.at(0, "a")
        on.client.stop_reading()
        await on.at(10, "c")
        await on.at(20, "d")
        await on.at(30, "e", ends=True, tokens=4)
    assert on.client.answer.complete
    assert all(text in on.client.sent for text in (b'"a"', b'"c"', b'"d"', b'"e"', b"[DONE]"))


async def test_an_engine_that_is_held_up_by_the_client_has_no_gap_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.http.connection_pool.BUFFER_BYTES", 100)
    async with stage(monkeypatch) as on:
        await on.at(0, "a")
        await on.at(10, "b")
        on.client.stop_reading()
        await on.at(20, "c")
        await on.client.reads(b'"c"')
        await asyncio.sleep(0)
        await on.at(30, "d")  # more than may lie unread
        on.now_s = 1_001.0
        on.client.read_on()
        await on.client.reads(b'"d"')
        await on.at(1_010, "e", ends=True, tokens=5)
    found = on.measured
    assert found.client_stall_ms == pytest.approx(980.0)
    assert (found.itl_max_ms, found.gaps_over_100ms, found.tpot_ms) == (10.0, 0, 10.0)
