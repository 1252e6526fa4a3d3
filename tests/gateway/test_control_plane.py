"""The control plane is loaded once, beside what serves, and a failure to load it is no end."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.control_plane import ControlPlane, is_controlled
from gateway.http.unknown_url import unknown_url
from tests.waiting import eventually


class Loaded:
    """A control plane without routes."""

    def __init__(self) -> None:
        self.served: list[str] = []
        self.started = self.stopped = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert self.started
        self.served.append(scope["path"])

    async def start(self) -> None:
        asyncio.get_running_loop()
        self.started += 1

    async def stop(self) -> None:
        self.stopped += 1


async def ask(plane: ControlPlane, path: str) -> None:
    await plane({"type": "http", "path": path}, None, None)


async def test_requests_wait_for_one_loading_in_a_thread() -> None:
    loaded, free, threads, told = Loaded(), threading.Event(), [], []

    def load() -> Loaded:
        threads.append(threading.current_thread())
        free.wait()
        return loaded

    plane = ControlPlane(load, on_loaded=lambda: told.append(loaded.started))
    plane.start()
    requests = [asyncio.create_task(ask(plane, path)) for path in ("/admin/v1/me", "/console")]
    await eventually(lambda: bool(threads))
    requests[0].cancel()  # its client left
    await asyncio.wait(requests[:1])
    assert loaded.served == []
    free.set()
    await requests[1]
    await ask(plane, "/admin/v1/keys")
    assert loaded.served == ["/console", "/admin/v1/keys"]
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()
    assert told == [1]
    await plane.stop()
    await plane.stop()
    assert loaded.stopped == 1


async def test_a_failure_is_logged_and_the_next_request_tries_again(caplog: pytest.LogCaptureFixture) -> None:
    loaded = Loaded()
    outcomes: list[Callable[[], Loaded]] = [_full, _full, lambda: loaded]
    plane = ControlPlane(lambda: outcomes.pop(0)())
    with caplog.at_level(logging.ERROR):
        plane.start()
        await eventually(lambda: "disk full" in caplog.text)
    with pytest.raises(OSError, match="disk full"):
        await ask(plane, "/console")
    await ask(plane, "/console")
    assert loaded.served == ["/console"]
    await plane.stop()


async def test_one_that_cannot_start_is_stopped() -> None:
    class Halting(Loaded):
        async def start(self) -> None:
            await super().start()
            raise OSError("no database")

    loaded = Halting()
    plane = ControlPlane(lambda: loaded)
    with pytest.raises(OSError, match="no database"):
        await ask(plane, "/console")
    assert (loaded.started, loaded.stopped) == (1, 1)
    await plane.stop()
    assert loaded.stopped == 1


def _full() -> Loaded:
    raise OSError("disk full")


async def test_one_that_was_never_asked_stops() -> None:
    await ControlPlane(Loaded).stop()


async def test_one_stops_while_it_loads() -> None:
    free, loaded = threading.Event(), Loaded()

    def load() -> Loaded:
        free.wait()
        return loaded

    plane = ControlPlane(load)
    plane.start()
    await plane.stop()
    free.set()
    assert loaded.started == 0


@pytest.mark.parametrize(
    "path", ["/admin/v1/me", "/admin", "//admin/v1", "/v1/admin/keys", "/console", "/console/api/x"]
)
def test_what_is_administered_is_led_there(path: str) -> None:
    assert is_controlled(path)


@pytest.mark.parametrize(
    "path", ["/", "", "/v1/models", "/healthz", "/openapi.json", "/administer", "/v1", "/v1/consoles"]
)
def test_everything_else_is_not(path: str) -> None:
    assert not is_controlled(path)


@given(st.lists(st.sampled_from(["", "v1", "admin", "console", "models", "x"]), max_size=6).map("/".join))
def test_whatever_is_answered_as_administration_is_led_there(path: str) -> None:
    """Only the control plane knows the admin API's paths, by which a misspelt one is put right."""
    if "/admin/v1/openapi.json describes it" in unknown_url("GET", path, {}).message:
        assert is_controlled(path)
