"""The listening connection by itself: what it hears, and what it says when it cannot."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import ConfigError
from storage import notification_listener
from storage.engine import connect
from storage.notification_listener import NotificationListener
from tests.gateway.auth.wire import Wire
from tests.waiting import GUARD_S, eventually


def listener_at(url: str, heard: list[str], **changes: Any) -> NotificationListener:
    # a heartbeat that comes late on a busy machine would be a loss, and the listener would join once more
    settings: dict[str, Any] = {"heartbeat_s": 0.05, "heartbeat_timeout_s": GUARD_S, **changes}
    return NotificationListener(
        url,
        {"slipstream_test": heard.append},
        on_joined=lambda: heard.append("joined"),
        name="slipstream-test",
        **settings,
    )


async def test_payloads_are_heard_in_order_after_joining(postgres_url: str) -> None:
    heard: list[str] = []
    listener = listener_at(postgres_url, heard)
    assert listener.proven_at_s == float("-inf")
    await listener.start()
    connection = await connect(postgres_url)
    for payload in ("a", "b", "c"):
        await connection.execute("SELECT pg_notify('slipstream_test', $1)", payload)
    await eventually(lambda: len(heard) == 4)
    assert heard == ["joined", "a", "b", "c"]
    await listener.stop()
    assert listener.proven_at_s == float("-inf")
    await connection.close()


async def test_a_heartbeat_proves_what_was_announced_before_it_began(postgres_url: str) -> None:
    """The guarantee the key cache rests on, many times over: no proof from after an announcement without it."""
    heard: list[str] = []
    listener = listener_at(postgres_url, heard, heartbeat_s=0.001)
    await listener.start()
    connection = await connect(postgres_url)
    for number in range(50):
        await connection.execute("SELECT pg_notify('slipstream_test', $1)", str(number))
        announced_s = time.monotonic()
        await eventually(lambda: listener.proven_at_s > announced_s)  # noqa: B023  awaited here
        assert heard[-1] == str(number)
    await listener.stop()
    await connection.close()


async def test_it_joins_again_after_each_loss_and_proves_nothing_in_between(
    fresh_postgres_url: str, data_folder: Path
) -> None:
    heard: list[str] = []
    wire = Wire(fresh_postgres_url, data_folder.parent)
    listener = listener_at(wire.url, heard)
    await listener.start()  # returns although nothing is there
    assert heard == []
    for times in (1, 2):
        await wire.connect()
        await eventually(lambda: heard == ["joined"] * times)  # noqa: B023  awaited here
        wire.hold()
        await wire.asked.wait()  # this heartbeat is never answered
        proven_at_s = listener.proven_at_s
        await wire.cut()
        assert listener.proven_at_s == proven_at_s
        wire.flowing.set()
    await listener.stop()


async def test_an_absence_is_said_once_however_long_it_lasts(
    fresh_postgres_url: str, data_folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = []

    async def counted(*arguments: Any, **how: Any) -> Any:
        attempts.append(arguments)
        return await connect(*arguments, **how)

    monkeypatch.setattr(notification_listener, "connect", counted)
    monkeypatch.setattr(notification_listener, "LONGEST_PAUSE_S", 0.01)
    heard: list[str] = []
    wire = Wire(fresh_postgres_url, data_folder.parent)
    listener = listener_at(wire.url, heard)
    await listener.start()
    await eventually(lambda: len(attempts) > 3)
    assert caplog.text.count("cannot be reached, trying again") == 1
    await wire.connect()
    await eventually(lambda: heard == ["joined"])
    await wire.cut()
    await eventually(lambda: caplog.text.count("cannot be reached, trying again") >= 2)
    await listener.stop()


def test_a_url_that_cannot_work_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="database url"):
        listener_at("redis://localhost", [])
