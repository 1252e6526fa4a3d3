"""The streams of news of one gateway are bounded: in all, of one organization, of one principal."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from contracts.errors import RateLimited
from control.api.events.config import EventsConfig
from control.api.events.streams import EventStreams
from control.api.events.topics import Topic
from control.api.principal import Principal
from storage.roles import PrincipalKind, Role

TOPICS = frozenset({Topic.USAGE})


def principal(organization_id: UUID, *, operator: bool = False) -> Principal:
    return Principal(
        id=uuid4(),
        key_id=uuid4(),
        organization_id=organization_id,
        kind=PrincipalKind.MEMBER,
        name="n",
        email=None,
        role=Role.OWNER,
        operator=operator,
    )


async def no_database(what: str, work: Any) -> Any:
    """Nobody is ever connected."""
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
    ours, theirs = uuid4(), uuid4()
    config = EventsConfig(max_streams=50, max_streams_per_principal=2, max_streams_per_organization=3)
    one, two, stranger = principal(ours), principal(ours), principal(theirs)
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
    operators = uuid4()
    async with event_streams(config) as streams:
        with contextlib.ExitStack() as stack:
            tenants = 0
            while not refuses(streams, tenant := principal(uuid4())):
                stack.enter_context(streams.open(tenant, TOPICS))
                tenants += 1
            assert tenants == {5: 5, 10: 9}[places]
            operator = principal(operators, operator=True)
            assert refuses(streams, operator) == (places == 5)
