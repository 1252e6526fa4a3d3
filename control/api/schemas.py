"""Common parts of the admin API's bodies and queries: strict structs, names, pages."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Generic, Literal, TypeVar
from uuid import UUID

import msgspec
from msgspec import Meta

from contracts.generation import Tier

ItemT = TypeVar("ItemT")

# The pattern needs its look-ahead, because `$` also matches before a final newline.
NO_CONTROL_CHARACTERS = r"^(?![\s\S]*[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069])[\s\S]*$"

# Refusals quote the description of a pattern.
PLAIN_TEXT = "text without control characters"
Name = Annotated[str, Meta(min_length=1, max_length=200, pattern=NO_CONTROL_CHARACTERS, description=PLAIN_TEXT)]
Description = Annotated[str, Meta(max_length=1_000, pattern=NO_CONTROL_CHARACTERS, description=PLAIN_TEXT)]
Email = Annotated[
    str,
    Meta(
        min_length=3,
        max_length=254,
        pattern=r"^[!-?A-~]+@[!-?A-~]+$(?![\s\S])",
        description="an e-mail address such as ada@acme.example",
    ),
]
ModelName = Annotated[str, Meta(min_length=1, max_length=256, pattern=NO_CONTROL_CHARACTERS, description=PLAIN_TEXT)]
ModelNames = Annotated[list[ModelName], Meta(max_length=1_000)]
Tiers = Annotated[list[Tier], Meta(max_length=len(Tier))]
Moment = Annotated[datetime, Meta(tz=True)]
LedgerMoment = Annotated[datetime, Meta(tz=True, extra_json_schema={"pattern": "^20[2-9][0-9]-"})]
"""A time within a ledger's range; see `moments.moment`."""


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A request's JSON body. An unknown field is refused by name."""


class Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Query parameters. An unknown one is refused by name."""


class PageQuery(Query, frozen=True, kw_only=True):
    """Selects a page of a list."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    """The maximum number of items."""
    cursor: Annotated[str, Meta(max_length=1_024, extra_json_schema={"pattern": "^W[A-Za-z0-9_-]+$"})] | None = None
    """`next_cursor` of the previous page."""


class LongPageQuery(PageQuery, frozen=True, kw_only=True):
    """Selects a page of a list with small items, all of which a menu needs."""

    limit: Annotated[int, Meta(ge=1, le=1_000)] = 20
    """The maximum number of items."""


class Page(msgspec.Struct, Generic[ItemT], frozen=True, kw_only=True):
    """Part of a list, newest first."""

    data: list[ItemT]
    has_more: bool
    next_cursor: str | None
    """Send it as `cursor` for the next page; null at the end."""
    object: Literal["list"] = "list"


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """A deleted object."""

    id: UUID
    deleted: Literal[True] = True
