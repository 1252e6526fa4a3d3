"""A stream's events arrive whole and in order, whatever the client's pace."""

from __future__ import annotations

import asyncio
import random

import pytest

from contracts.errors import EngineFailed, InvalidField
from engines.embedded.http.chat_format import ChatFormat
from engines.embedded.http.stream import EventStream
from engines.embedded.live import LiveRequest
from engines.embedded.output import Delta, Finish, Speculated
from engines.tokenizer.tokenizer import Tokenizer
from tests.engines.embedded.tiny import SHIPPED, request

TOKENIZER = Tokenizer.load(SHIPPED / "slipstream-chat")


class Client:
    """An exchange whose client is now and then too slow."""

    def __init__(self, slow: random.Random | None) -> None:
        self.received = b""
        self.refused = self.at_once = 0
        self.ended = False
        self._slow = slow

    async def start_events(self) -> None:
        self.received = b""

    def try_write(self, data: bytes) -> bool:
        assert not self.ended
        if self._slow is not None and self._slow.random() < 0.5:
            self.refused += 1
            return False
        self.at_once += 1
        self.received += data
        return True

    async def write(self, data: bytes, *, last: bool = False) -> None:
        for _ in range(0 if self._slow is None else self._slow.randrange(4)):
            await asyncio.sleep(0)
        self.received += data
        self.ended = last


def deltas(count: int, end: Finish) -> list[Delta]:
    made = [Delta("r", 0, f"text {at} ", 3, at + 1, 0) for at in range(count)]
    return [*made, Delta("r", 0, "", 3, count, 0, (), end)]


async def stream(client: Client, news: list[Delta], pace: random.Random, *, extended: bool = False) -> None:
    """Tell the news one by one or several at once, with the loop running between some of them."""
    live = LiveRequest(request("r", [1, 2, 3]))
    form = ChatFormat(live.request, "m", TOKENIZER, None)
    form._head = b"data: {"
    task = asyncio.create_task(
        EventStream(
            client,  # type: ignore[arg-type]
            form,
            live,
            continuous_usage_stats=False,
            include_usage=True,
            extended=extended,
        ).run()
    )
    waiting = list(news)
    while waiting:
        for _ in range(pace.randrange(1, 4)):
            if waiting:
                live.put(waiting.pop(0))
        live.tell()
        for _ in range(pace.randrange(3)):
            await asyncio.sleep(0)
    await task


async def test_guesses_are_told_once_before_the_usage_and_only_if_asked_for() -> None:
    end = Delta("r", 0, "", 3, 5, 0, (), Finish("stop", 3), Speculated(2, 6, 3))
    for extended in (True, False):
        client = Client(None)
        await stream(client, [*deltas(5, Finish("stop"))[:-1], end], random.Random(0), extended=extended)
        events = client.received.split(b"\n\n")
        told = [at for at, event in enumerate(events) if b'"spec_num_proposed_drafts":6' in event]
        assert told == ([len(events) - 4] if extended else [])
        assert b'"completion_tokens":5' in events[-3]


@pytest.mark.parametrize("end", [Finish("stop", 3), Finish("error", error=InvalidField("too much"))])
async def test_a_slow_client_gets_what_a_fast_one_gets(end: Finish) -> None:
    news = deltas(40, end)
    fast = Client(None)
    await stream(fast, news, random.Random(0))
    assert fast.received.count(b"text ") == 40
    assert fast.ended
    assert (b"[DONE]" in fast.received) == (end.reason == "stop")
    for seed in range(30):
        slow = Client(random.Random(seed))
        await stream(slow, news, random.Random(seed))
        assert slow.received == fast.received
        assert slow.refused > 0


async def test_most_events_are_written_without_waking_the_task() -> None:
    client = Client(None)
    live = LiveRequest(request("r", [1, 2, 3]))
    form = ChatFormat(live.request, "m", TOKENIZER, None)
    stream_ = EventStream(client, form, live, continuous_usage_stats=False, include_usage=False)  # type: ignore[arg-type]
    task = asyncio.create_task(stream_.run())
    await asyncio.sleep(0)
    for delta in deltas(50, Finish("length")):
        live.put(delta)
        live.tell()
        await asyncio.sleep(0)
    await task
    assert client.at_once >= 45


async def test_an_engine_that_breaks_down_breaks_the_stream() -> None:
    client = Client(None)
    live = LiveRequest(request("r", [1, 2, 3]))
    form = ChatFormat(live.request, "m", TOKENIZER, None)
    stream_ = EventStream(client, form, live, continuous_usage_stats=False, include_usage=False)  # type: ignore[arg-type]
    task = asyncio.create_task(stream_.run())
    live.put(deltas(1, Finish("stop"))[0])
    live.tell()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    live.fail()
    with pytest.raises(EngineFailed):
        await task
    assert not client.ended
