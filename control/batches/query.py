"""Query parameters of lists."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Cursor = Annotated[str, Meta(max_length=100)]


class FileQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Selects files for a list."""

    purpose: Annotated[str, Meta(max_length=100)] | None = None
    after: Cursor | None = None
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 10_000
    order: Literal["asc", "desc"] = "desc"


class BatchQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Selects batches for a list."""

    after: Cursor | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


class NoQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""
