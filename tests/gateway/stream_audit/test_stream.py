"""A stream ends when it should, whoever does not read it and whenever its gateway leaves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from contracts.errors import Draining, RequestTimeout
from gateway.stream_audit import stream
from gateway.stream_audit.asked import Asked
from gateway.stream_audit.stream import send
from tests.slipstream.stream_audit.networks import opening


class Client:
    """As ResponseWriter to `send`; reads so many events and then no more."""

    def __init__(self, reads: int) -> None:
        self.sent: list[bytes] = []
        self._reads = reads

    async def drained(self) -> None:
        if len(self.sent) >= self._reads:
            await asyncio.get_running_loop().create_future()

    def events(self, data: bytes) -> None:
        self.sent.append(data)


async def sent_to(client: Any, asked: Asked, draining: bool = False) -> None:
    await send(asked, client, opening(), lambda: draining)


async def test_a_client_that_does_not_read_holds_nothing_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "GRACE_S", 0.1)
    client = Client(reads=3)
    with pytest.raises(RequestTimeout, match=r"not read within 0\.19 s"):
        await sent_to(client, Asked(events=10, interval_ms=10))
    assert len(client.sent) == 3


async def test_a_silence_of_minutes_does_not_keep_a_gateway_that_leaves() -> None:
    client = Client(reads=10)
    with pytest.raises(Draining):
        await sent_to(client, Asked(events=2, interval_ms=120_000), draining=True)
    assert len(client.sent) == 1


async def test_all_events_are_sent_and_the_end_is_left_to_the_caller() -> None:
    client = Client(reads=10)
    await sent_to(client, Asked(events=4, interval_ms=1))
    assert len(client.sent) == 4
    assert stream.FINISH not in client.sent
