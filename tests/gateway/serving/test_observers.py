"""Features that watch requests hear of the events that they subscribed to, and change nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client import generate_latest

from contracts.errors import SlipstreamError
from contracts.lease import Engine
from gateway.http.response import ResponseWriter
from gateway.serving.attempt import Attempt
from gateway.serving.observers import Observers, RequestObserver
from gateway.serving.request import InferenceRequest
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import Harness, body, harness


class Everything(RequestObserver):
    """Notes each event, and how many records were closed and leases given back by then."""

    def __init__(self, platform: Harness) -> None:
        self._platform = platform
        self.seen: list[tuple[str, int, int]] = []

    def _note(self, event: str) -> None:
        self.seen.append((event, len(self._platform.journal.records), len(self._platform.router.ends)))

    def arrived(self, request: InferenceRequest) -> None:
        self._note("arrived")

    def placed(self, attempt: Attempt, engine: Engine) -> None:
        self._note(f"placed on {engine.replica_id}")

    def failed(self, attempt: Attempt, error: SlipstreamError) -> None:
        self._note(f"failed: {error.code}")

    def attempted(self, attempt: Attempt) -> None:
        self._note("attempted")

    def answered(self, attempt: Attempt) -> None:
        self._note("answered")

    def aborted(self, cause: str, after_s: float) -> None:
        self._note(f"aborted: {cause}")

    def ended(self, request: InferenceRequest, response: ResponseWriter) -> None:
        self._note(f"ended: {response.status or 499}")


def watched(platform: Harness) -> Everything:
    observer = Everything(platform)
    platform.serving.observers.subscribe(observer)
    return observer


@pytest.mark.parametrize("stream", [True, False])
async def test_events_of_a_request_come_in_the_order_of_its_path(stream: bool) -> None:
    async with harness() as platform:
        observer = watched(platform)
        await platform.serve(Client(), body(stream=stream))
    assert observer.seen == [
        ("arrived", 0, 0),
        ("placed on engine-0", 0, 0),
        ("attempted", 0, 1),
        ("answered", 1, 1),
        ("ended: 200", 1, 1),
    ]


async def test_each_attempt_of_a_request_has_events_of_its_own() -> None:
    async with harness() as platform:
        observer = watched(platform)
        platform.engines[0].control(b'{"status":500,"tokens":4}')
        await platform.serve(Client(), body(stream=True))
    assert [event for event, _, _ in observer.seen] == [
        "arrived",
        "placed on engine-0",
        "failed: engine_failed",
        "attempted",
        "placed on engine-1",
        "attempted",
        "answered",
        "ended: 200",
    ]


async def test_a_client_that_leaves_ends_its_request_without_an_answer() -> None:
    async with harness(engines=1, driver="embedded") as platform:
        observer, client = watched(platform), Client()
        platform.faults.calls["placed"] = client.leave
        await platform.serve(client, body(stream=True))
    events = [event for event, _, _ in observer.seen]
    assert events[0] == "arrived"
    assert events[-2:] == ["attempted", "ended: 499"]
    assert "answered" not in events


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError])
async def test_an_observer_that_fails_is_counted_and_its_requests_go_on(error: type[BaseException]) -> None:
    class Failing(Everything):
        def _note(self, event: str) -> None:
            raise error(event)

    async with harness() as platform:
        platform.serving.observers.subscribe(Failing(platform))
        observer, client = watched(platform), Client()
        platform.engines[0].control(b'{"status":500,"tokens":4}')
        await platform.serve(client, body(stream=True))
        text = generate_latest(platform.registry).decode()
    assert [event for event, _, _ in observer.seen][-1] == "ended: 200"
    assert len(platform.journal.records) == len(platform.router.ends) == 2
    for event, count in (("arrived", 1), ("placed", 2), ("failed", 1), ("attempted", 2), ("answered", 1), ("ended", 1)):
        assert f'slipstream_observer_failures_total{{method="Everything.{event}"}} {count}.0' in text


def test_an_event_without_a_subscriber_calls_nothing() -> None:
    class OnlyEnds(RequestObserver):
        def ended(self, request: Any, response: Any) -> None: ...

    observers = Observers(pytest.fail)
    observers.subscribe(OnlyEnds(), RequestObserver(), OnlyEnds())
    counts = {event: len(subscribers) for event, subscribers in vars(observers).items()}
    assert {event: count for event, count in counts.items() if count} == {"ended": 2}


def test_every_event_can_be_subscribed_to() -> None:
    events = {name for name in vars(RequestObserver) if not name.startswith("_")}
    assert set(vars(Observers(pytest.fail))) == events
