"""A router that takes connections and answers nobody keeps who asks it for a moment, not for ever."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from contracts.errors import RouterUnavailable
from control.router_view import control_client
from control.router_view.control_client import RouterControl


async def test_a_router_that_hangs_is_asked_by_one_and_not_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_client, "TIMEOUT_S", 0.2)
    met = 0
    asked: list[asyncio.Task[None] | None] = []

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal met
        met += 1
        asked.append(asyncio.current_task())
        with contextlib.closing(writer):
            await reader.read()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    router = RouterControl(f"127.0.0.1:{port}", "token")
    try:
        with pytest.raises(RouterUnavailable, match="does not answer"):
            await router.live_fleet()
        assert met == 1
        await router.stop()  # asking anew would connect anew
        with pytest.raises(RouterUnavailable, match="does not answer") as refused:
            await router.placements("req-1")
        assert met == 1
        assert refused.value.retry_after_s is not None
        assert 0 < refused.value.retry_after_s <= control_client.AWAY_S
    finally:
        await router.stop()
        server.close()
        for task in asked:
            if task is not None:
                task.cancel()
