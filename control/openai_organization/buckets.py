"""OpenAI's pages of buckets. A period is cut into equal buckets, and a page has some of them, including empty ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Literal, NamedTuple
from uuid import UUID

import msgspec
from msgspec import Meta, field

from contracts.errors import InvalidField
from control.api.moments import FIRST, LAST
from control.api.schemas import ModelName, Query

Seconds = Annotated[int, Meta(ge=int(FIRST.timestamp()), lt=int(LAST.timestamp()))]
"""Unix time."""
MAX_OWNERS = 20
"""Limit of the ids in one filter."""
MAX_RESULTS = 20_000
"""Limit of the results in one page."""


class Width(StrEnum):
    """Width of a bucket."""

    MINUTE = "1m"
    HOUR = "1h"
    DAY = "1d"

    @property
    def duration(self) -> timedelta:
        """The length of a bucket."""
        return {Width.MINUTE: timedelta(minutes=1), Width.HOUR: timedelta(hours=1), Width.DAY: timedelta(days=1)}[self]

    @property
    def limits(self) -> tuple[int, int]:
        """The default and the largest number of buckets in a page."""
        return {Width.MINUTE: (60, 1_440), Width.HOUR: (24, 168), Width.DAY: (7, 31)}[self]


class BucketQuery(Query, frozen=True, kw_only=True):
    """A period and filters. Times are Unix seconds; buckets begin at whole minutes, hours or days in UTC. project_ids,
    api_key_ids and models may be repeated."""

    start_time: Seconds
    """The first bucket contains this time."""
    end_time: Seconds | None = None
    """The last bucket begins before this time; by default, now."""
    project_ids: Annotated[list[UUID], Meta(max_length=MAX_OWNERS)] = field(default_factory=list)
    api_key_ids: Annotated[list[UUID], Meta(max_length=MAX_OWNERS)] = field(default_factory=list)
    models: Annotated[list[ModelName], Meta(max_length=MAX_OWNERS)] = field(default_factory=list)
    limit: Annotated[int, Meta(ge=1, le=1_440)] | None = None
    """Buckets in a page: by default 7 days, 24 hours or 60 minutes, and at most 31, 168 or 1440."""
    page: Annotated[str, Meta(max_length=100, pattern=r"^page_[0-9]{10}$")] | None = None
    """The `next_page` of the previous page."""
    organization_id: UUID | None = None
    """An extension: another organization, for members of the operating organization."""


class Span(NamedTuple):
    """The buckets of one page."""

    width: timedelta
    starts: list[datetime]
    next_page: str | None

    @property
    def end(self) -> datetime:
        """End of the last bucket."""
        return self.starts[-1] + self.width


def span_of(query: BucketQuery, width: Width, most: tuple[int, int] | None = None) -> Span:
    """The page's buckets, at least one. most: default and largest number of buckets; None for the width's. Raises
    InvalidField."""
    default, largest = most or width.limits
    if query.limit is not None and query.limit > largest:
        raise InvalidField(
            f"Invalid value for 'limit': {query.limit}; a page has at most {largest} buckets of {width.value}.",
            param="limit",
        )
    end = datetime.now(UTC) if query.end_time is None else datetime.fromtimestamp(query.end_time, UTC)
    begin = _floored(datetime.fromtimestamp(query.start_time, UTC), width.duration)
    if begin >= end:
        raise InvalidField("Invalid value for 'end_time': it is not after 'start_time'.", param="end_time")
    first = begin
    if query.page is not None:
        first = datetime.fromtimestamp(int(query.page.removeprefix("page_")), UTC)
        if not begin <= first < end or _floored(first, width.duration) != first:
            raise InvalidField("Invalid value for 'page': give the `next_page` of an earlier response.", param="page")
    starts = [start for number in range(query.limit or default) if (start := first + number * width.duration) < end]
    after = starts[-1] + width.duration
    return Span(width.duration, starts, f"page_{int(after.timestamp())}" if after < end else None)


def _floored(moment: datetime, width: timedelta) -> datetime:
    return moment - (moment - FIRST) % width


class BucketOf(msgspec.Struct, frozen=True, kw_only=True):
    """Beginning and end of a bucket, Unix seconds."""

    start_time: int
    end_time: int
    object: Literal["bucket"] = "bucket"
