"""Statistics of candidates' answers to copies of requests."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from control.api.call import AdminCall
from control.api.schemas import ModelName, Query
from control.shadow import sums
from control.shadow.sums import ShadowSums

ReleaseName = Annotated[str, Meta(max_length=256)]


class ShadowQuery(Query, frozen=True, kw_only=True):
    """Filters. release: its id."""

    release: ReleaseName | None = None
    model: ModelName | None = None


class ShadowReport(msgspec.Struct, frozen=True, kw_only=True):
    """By release, model and stage, newest first."""

    data: list[ShadowSums]


async def get_shadow(call: AdminCall, query: ShadowQuery) -> ShadowReport:
    """Compare candidates' responses with those that customers got, by release, model and stage.

    The report covers pairs within their retention (`worker.shadow`). The 95 % intervals treat sessions, not pairs, as
    independent.
    """
    return ShadowReport(data=await sums.sums(call.connection, release=query.release, model=query.model))
