"""Provides stores, answers and pages of items to the routes of stored responses and of conversations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec
from litestar import Response
from litestar.di import NamedDependency
from litestar.params import SkipValidation

from contracts.errors import InvalidField
from contracts.misfit import shortened
from gateway.auth.guard import KeyedRequest
from gateway.auth.keyring import Keyring
from gateway.responses.background import BackgroundResponses
from gateway.responses.conversations import ConversationStore
from gateway.responses.event_streams import EventStreams
from gateway.responses.store import ResponseStore

DEFAULT_ITEMS, MAX_ITEMS = 20, 100
ORDERS = ("asc", "desc")


class Stores(Protocol):
    """The parts of a running gateway that stored responses and conversations need."""

    responses: ResponseStore
    conversations: ConversationStore
    background: BackgroundResponses
    event_streams: EventStreams
    keyring: Keyring
    draining: bool


Parts = NamedDependency[SkipValidation[Stores]]
"""The gateway's services, which have more fields, so Litestar must not convert them."""


def route(path: str) -> str:
    """The path with its parameters as Litestar declares them."""
    return path.replace("_id}", "_id:str}")


def page_asked(request: KeyedRequest) -> tuple[int, str, str | None]:
    """The query's limit, order and cursor. Raises InvalidField."""
    query = request.query_params
    limit, order = query.get("limit", str(DEFAULT_ITEMS)), query.get("order", "desc")
    if not (limit.isascii() and limit.isdigit() and len(limit) < 5 and 1 <= int(limit) <= MAX_ITEMS):
        raise InvalidField(
            f"Invalid value for 'limit': {shortened(repr(limit))}. It must be from 1 to {MAX_ITEMS}.", param="limit"
        )
    if order not in ORDERS:
        raise InvalidField(
            f"Invalid value for 'order': {shortened(repr(order))}. It must be one of: {', '.join(ORDERS)}.",
            param="order",
        )
    return int(limit), order, query.get("after")


def page_of(items: Sequence[tuple[str, bytes]], limit: int, order: str, after: str | None) -> bytes:
    """The JSON of a page. items: with their ids, oldest first. Raises InvalidField for an unknown cursor."""
    items = list(items) if order == "asc" else list(reversed(items))
    if after is not None:
        start = next((at + 1 for at, (name, _) in enumerate(items) if name == after), None)
        if start is None:
            raise InvalidField(
                f"Invalid value for 'after': {shortened(repr(after))}. No item of this list has that id. Send the last "
                "id of a previous page, or omit 'after'.",
                param="after",
            )
        items = items[start:]
    page = items[:limit]
    listed = {
        "object": "list",
        "data": [msgspec.Raw(item) for _, item in page],
        "first_id": page[0][0] if page else None,
        "last_id": page[-1][0] if page else None,
        "has_more": len(items) > limit,
    }
    return msgspec.json.encode(listed)


def json_response(body: bytes) -> Response[bytes]:
    return Response(body, media_type="application/json")
