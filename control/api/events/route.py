"""`GET /admin/v1/events`: server-sent events that name changed topics. It is not an operation, because its response
does not end, but it shares the operations' guards, parameters and errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp
from msgspec import Meta

from contracts.dated_request_id import mint
from contracts.errors import ForeignPage, InvalidField
from control.api.api import AdminApi
from control.api.events.streams import EventStreams, Stream
from control.api.events.topics import Topic, require_topics
from control.api.operation import IN_QUERY, get, query_of
from control.api.request import BoundedRequest
from control.api.schemas import Query
from control.sessions.site import OWN
from gateway.http.client_connection import SCOPE_KEY, ClientConnection
from gateway.http.disconnect import ClientGone, ClientWatch

PATH = "/events"
RETRY_MS = 3_000
LEAVING_S = 0.5
"""Interval at which a quiet stream checks for the gateway's shutdown."""
BEAT = b": beat\n\n"
ONE = f"({'|'.join(Topic)})"


class EventsQuery(Query, frozen=True, kw_only=True):
    """Topics of a stream."""

    topics: Annotated[
        str,
        Meta(
            max_length=200,
            extra_json_schema={
                "pattern": f"^{ONE}(,{ONE})*$",
                "description": f"Names with commas between them, of {', '.join(f'`{topic}`' for topic in Topic)}.",
                "examples": ["usage,requests"],
            },
        ),
    ]
    """Names, separated by commas. `_topics` refuses an unknown one by name."""


async def hear_events(call: object, query: EventsQuery) -> None:
    """Notify of changed topics by server-sent events.

    Each event is called `news`, and its data name one topic: `{"topic":"usage"}`. Read the changes from the topic's own
    endpoints. A tenant is notified of its own organization alone. After a lost connection with `Last-Event-ID`, all
    requested topics are named at once if there may have been changes in between. The stream ends with the key or
    session, when its permissions change, and after some minutes in any case: open another one.
    """


EVENTS = get(hear_events, None, PATH)


def events_route() -> HTTPRouteHandler:
    """The route below /admin/v1, whose guards have identified the caller."""

    async def events(request: BoundedRequest) -> ASGIApp:
        site = request.headers.get("sec-fetch-site", "none")
        if site not in OWN:  # a stream takes a connection away from its owner's pages
            raise ForeignPage(f"A page of another site requested these events (Sec-Fetch-Site: {site[:40]!r}).")
        admin: AdminApi = request.app.state.services.admin
        query = query_of(EventsQuery, {f"{IN_QUERY}topics": request.query_params.get("topics")})
        topics = _topics(query.topics)
        require_topics(request.user, topics)
        services = request.app.state.services
        since = request.headers.get("last-event-id", "")

        async def serve(scope: Any, receive: Any, send: Any) -> None:
            connection: ClientConnection = scope.pop(SCOPE_KEY)
            try:
                async with ClientWatch(connection):
                    with admin.events.open(request.user, topics) as stream:
                        await _tell(admin.events, stream, connection, since, services.leaving)
            except ClientGone:
                return

        return serve

    return HTTPRouteHandler(PATH, http_method="GET", opt={"operation": EVENTS}, include_in_schema=False)(events)


async def _tell(
    events: EventStreams, stream: Stream, connection: ClientConnection, since: str, leaving: Callable[[], bool]
) -> None:
    """Send events until the stream ends, its time is up, or the gateway stops. since: the client's last event."""
    clock = asyncio.get_running_loop().time
    await stream.looked.wait()
    began_s = sent_s = clock()
    connection.start(
        200,
        [
            (b"content-type", b"text/event-stream"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
            (b"x-content-type-options", b"nosniff"),
            (b"x-request-id", mint().encode()),
        ],
    )
    last_id = events.last_id(stream)
    connection.write(f"retry: {RETRY_MS}\nid: {last_id}\n\n".encode())
    if since and since != last_id:
        stream.tell(set(stream.topics))
    while not stream.ended and not leaving() and clock() - began_s < events.config.longest_s:
        news = await stream.news(min(LEAVING_S, events.config.beat_s))
        if connection.full and not await _read(connection, events.config.beat_s):
            break
        last_id = events.last_id(stream) if news else last_id
        for topic in news:
            data = msgspec.json.encode({"topic": topic}).decode()
            connection.write(f"id: {last_id}\nevent: news\ndata: {data}\n\n".encode())
        if news:
            sent_s = clock()
        elif clock() - sent_s >= events.config.beat_s:
            connection.write(BEAT)
            sent_s = clock()
    connection.end(b"")


async def _read(connection: ClientConnection, timeout_s: float) -> bool:
    """Whether the client reads the stream."""
    try:
        async with asyncio.timeout(timeout_s):
            await connection.drained()
    except TimeoutError:
        return False
    return True


def _topics(text: str) -> frozenset[Topic]:
    """Parse the names. Raises InvalidField for an unknown one."""
    names = text.split(",")
    known = [topic.value for topic in Topic]
    for name in names:
        if name not in known:
            raise InvalidField(
                f"Invalid value for 'topics': {name[:100]!r} is not a topic; topics: {', '.join(known)}.",
                param="topics",
            )
    return frozenset(Topic(name) for name in names)
