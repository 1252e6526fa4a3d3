"""The control plane is loaded once, beside what serves, and a failure to load it is no end."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.unknown_url import unknown_url
from slipstream.control_plane import FIRST_PAUSE_S, ControlPlane
from tests.virtual_time import in_virtual_time
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


@in_virtual_time
async def test_it_is_loaded_again_after_pauses_and_requests_are_refused_meanwhile(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each request loaded all of the admin API's code again, and got an answer in plain text."""
    loaded, attempts = Loaded(), 0

    def load() -> Loaded:
        nonlocal attempts
        attempts += 1
        return loaded if attempts > 3 else _full()

    plane = ControlPlane(load)
    with caplog.at_level(logging.ERROR):
        plane.start()
        for _ in range(200):
            status, headers, error = await refused(plane)
            assert (status, error["code"]) == (503, "service_unavailable")
            assert headers[b"content-type"] == b"application/json"
            assert headers[b"x-request-id"].startswith(b"req_")
            assert 1 <= int(headers[b"retry-after"]) <= FIRST_PAUSE_S
    assert attempts == 1
    assert len(caplog.records) == 1
    await asyncio.sleep(3 * FIRST_PAUSE_S)
    assert attempts == 3
    await asyncio.sleep(4 * FIRST_PAUSE_S)
    await ask(plane, "/console")
    assert loaded.served == ["/console"]
    await plane.stop()


@in_virtual_time
async def test_one_that_cannot_start_is_stopped_and_tried_again() -> None:
    class Halting(Loaded):
        async def start(self) -> None:
            await super().start()
            if self.started == 1:
                raise OSError("no database")

    loaded = Halting()
    plane = ControlPlane(lambda: loaded)
    status, _, _ = await refused(plane)
    assert status == 503
    assert (loaded.started, loaded.stopped) == (1, 1)
    await asyncio.sleep(FIRST_PAUSE_S)
    await ask(plane, "/console")
    await plane.stop()
    assert loaded.stopped == 2


async def refused(plane: ControlPlane) -> tuple[int, dict[bytes, bytes], Any]:
    """Status, headers and error of an answer that is the plane's own."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await plane({"type": "http", "path": "/console"}, None, send)
    start, body = sent
    return start["status"], dict(start["headers"]), msgspec.json.decode(body["body"])["error"]


def _full() -> Loaded:
    raise OSError("disk full")


async def test_one_that_was_never_asked_stops() -> None:
    await ControlPlane(Loaded).stop()


async def test_one_stops_while_it_loads() -> None:
    loads, free, loaded = threading.Event(), threading.Event(), Loaded()

    def load() -> Loaded:
        loads.set()
        free.wait()
        return loaded

    plane = ControlPlane(load)
    plane.start()
    await eventually(loads.is_set)
    await plane.stop()
    free.set()
    await eventually(lambda: "control plane" not in {task.get_name() for task in asyncio.all_tasks()})
    assert loaded.started == 0


def test_what_is_administered_is_led_there_and_nothing_else() -> None:
    plane = ControlPlane(Loaded)
    administered = ["/admin/v1/me", "/admin", "//admin/v1", "/v1/admin/keys", "/console", "/console/api/x"]
    others = ["/", "", "/v1/models", "/healthz", "/openapi.json", "/administer", "/v1", "/v1/consoles"]
    assert [path for path in (*administered, *others) if plane.serves(path)] == administered


@given(st.lists(st.sampled_from(["", "v1", "admin", "console", "models", "x"]), max_size=6).map("/".join))
def test_whatever_is_answered_as_administration_is_led_there(path: str) -> None:
    """Only the control plane knows the admin API's paths, by which a misspelt one is put right."""
    if "/admin/v1/openapi.json describes it" in unknown_url("GET", path, {}, ["/keys"]).message:
        assert ControlPlane(Loaded).serves(path)
