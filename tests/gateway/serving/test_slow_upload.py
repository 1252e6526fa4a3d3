"""A body that is long on its way, on a clock that only the test turns."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from contracts.errors import InvalidField, RevokedKey, SlipstreamError
from contracts.phases import PhaseClock
from gateway.auth.key_record import KeyRecord
from gateway.serving.endpoint import LONG_ON_ITS_WAY_S
from gateway.serving.request import Arrival
from gateway.wire.config import RequestConfig
from gateway.wire.openai.format import ChatFormat
from gateway.wire.openai.schema import ChatRequest
from gateway.wire.prepared import Prepared
from tests.gateway.serving.doors import BODY, KEY, Doors, serving


class Refusing(ChatFormat):
    """A request ends where its prompt would be counted."""

    async def prepare(self, asked: ChatRequest, *more: Any) -> Prepared:
        raise InvalidField("no", param="messages")


class Door(Doors):
    """Its keys may be revoked, and it says when a request's head has passed."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.admitted = asyncio.Event()
        self.revoked = False
        self.spent_ms: dict[str, float] = {}

    def cached(self, secret: str) -> KeyRecord:
        self.admitted.set()
        if self.revoked:
            raise RevokedKey("revoked")
        return KEY

    def refused(self, arrival: Arrival, error: SlipstreamError, status: int) -> None:
        super().refused(arrival, error, status)
        self.spent_ms = arrival.clock.as_ms()


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Door:
    made = Door()
    monkeypatch.setattr("gateway.serving.request.PhaseClock", lambda: PhaseClock(lambda: made.now_s))
    return made


async def upload(door: Door, takes_s: float, *, revoke: bool = False) -> tuple[int, str]:
    """Status and error code of a request whose body takes so long; its key may be revoked meanwhile."""
    async with serving(Refusing(RequestConfig()), door) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST / HTTP/1.1\r\nhost: x\r\nauthorization: Bearer k\r\ncontent-length: {len(BODY)}\r\n\r\n"
        writer.write(head.encode() + BODY[:-1])
        await door.admitted.wait()
        door.now_s += takes_s
        door.revoked = revoke
        writer.write(BODY[-1:])
        answer = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        error = msgspec.json.decode(await reader.readexactly(int(length.partition(b":")[2])))["error"]
        writer.close()
        return int(answer.split()[1]), error["code"]


async def test_the_time_of_an_upload_is_in_the_phase_auth(door: Door) -> None:
    assert (await upload(door, LONG_ON_ITS_WAY_S))[0] == 400
    assert door.spent_ms == {"auth": LONG_ON_ITS_WAY_S * 1e3}


async def test_a_revoked_key_opens_nothing_for_a_body_that_was_long_on_its_way(door: Door) -> None:
    assert await upload(door, LONG_ON_ITS_WAY_S + 0.001, revoke=True) == (401, "revoked_api_key")


async def test_a_key_is_looked_at_once_for_a_body_that_came_in_time(door: Door) -> None:
    assert (await upload(door, LONG_ON_ITS_WAY_S, revoke=True))[0] == 400
