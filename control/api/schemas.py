"""What bodies and queries of the admin API are made of: strict structs, names, pages."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Generic, Literal, TypeVar
from uuid import UUID

import msgspec
from msgspec import Meta

from contracts.generation import Tier

ItemT = TypeVar("ItemT")

# The look-ahead, and no class up to `$` alone: `$` also matches before a final newline.
NO_CONTROL_CHARACTERS = r"^(?![\s\S]*[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069])[\s\S]*$"

# Beside a pattern stands what it asks for, in the words of a refusal.
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
"""One that a ledger may reach to, as `moments.moment` has it."""


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A request's JSON body: a field it does not know is refused by name."""


class Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What may stand after the `?`: a parameter it does not know is refused by name."""


class PageQuery(Query, frozen=True, kw_only=True):
    """Which part of a list."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    """Items at most."""
    cursor: Annotated[str, Meta(max_length=1_024, extra_json_schema={"pattern": "^W[A-Za-z0-9_-]+$"})] | None = None
    """`next_cursor` of the page before."""


class LongPageQuery(PageQuery, frozen=True, kw_only=True):
    """Of a list whose items are small, and wanted all at once by whoever chooses among them."""

    limit: Annotated[int, Meta(ge=1, le=1_000)] = 20
    """Items at most."""


class Page(msgspec.Struct, Generic[ItemT], frozen=True, kw_only=True):
    """Part of a list, newest first."""

    data: list[ItemT]
    has_more: bool
    next_cursor: str | None
    """To be sent as `cursor` for what follows; null at the end."""
    object: Literal["list"] = "list"


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """What is gone."""

    id: UUID
    deleted: Literal[True] = True
