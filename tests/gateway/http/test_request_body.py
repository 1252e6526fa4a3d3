"""Limits of size and time for the body of a request without a good key."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from contracts.errors import BodyTooLarge, RequestTimeout
from gateway.http.request_body import STRANGERS_BYTES, STRANGERS_TIMEOUT_S, strangers_body
from tests.virtual_time import in_virtual_time, now_s


def nothing(_: bytes) -> None:
    """Any structure is taken."""


@in_virtual_time
async def test_a_strangers_body_is_small_and_soon_whole() -> None:
    async def comes(size: int, every_s: float = 0.0) -> bytes:
        left = size

        async def receive() -> Any:
            nonlocal left
            await asyncio.sleep(every_s)
            left -= 1
            return {"type": "http.request", "body": b"x", "more_body": left > 0}

        return await strangers_body({}, receive, nothing)

    assert len(await comes(STRANGERS_BYTES)) == STRANGERS_BYTES
    with pytest.raises(BodyTooLarge):
        await comes(STRANGERS_BYTES + 1)
    began_s = now_s()
    with pytest.raises(RequestTimeout):
        await comes(100, 1.0)
    assert now_s() - began_s == pytest.approx(STRANGERS_TIMEOUT_S)
