"""The streams of news of one gateway are bounded: in all, of one organization, of one principal."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from contracts.errors import RateLimited
from control.api.events.config import EventsConfig
from control.api.events.streams import EventStreams
from control.api.events.topics import Topic
from control.api.principal import Principal
from tests.control.api.principals import principal

TOPICS = frozenset({Topic.USAGE})


async def no_database(what: str, work: Any) -> Any:
    await asyncio.get_running_loop().create_future()


@contextlib.asynccontextmanager
async def event_streams(config: EventsConfig) -> AsyncIterator[EventStreams]:
    streams = EventStreams(config, no_database, 3_600, list)
    yield streams
    await streams.stop()


def refuses(streams: EventStreams, who: Principal) -> bool:
    try:
        with streams.open(who, TOPICS):
            return False
    except RateLimited:
        return True


async def test_one_principal_and_one_organization_have_their_most() -> None:
    config = EventsConfig(max_streams=50, max_streams_per_principal=2, max_streams_per_organization=3)
    one, two, stranger = principal(1), principal(1, number=2), principal(2, number=3)
    async with event_streams(config) as streams:
        with streams.open(one, TOPICS):
            with streams.open(one, TOPICS):
                assert refuses(streams, one)
                with streams.open(two, TOPICS):
                    assert refuses(streams, two)
                    assert not refuses(streams, stranger)
                assert not refuses(streams, two)
            assert not refuses(streams, one)


@pytest.mark.parametrize("places", [5, 10])
async def test_a_tenth_of_the_places_is_the_operators(places: int) -> None:
    config = EventsConfig(max_streams=places)
    async with event_streams(config) as streams:
        with contextlib.ExitStack() as stack:
            tenants = 0
            while not refuses(streams, tenant := principal(tenants, number=tenants)):
                stack.enter_context(streams.open(tenant, TOPICS))
                tenants += 1
            assert tenants == {5: 5, 10: 9}[places]
            operator = principal(99, number=99, operator=True)
            assert refuses(streams, operator) == (places == 5)
