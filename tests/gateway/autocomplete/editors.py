"""Completions of two organizations, and what their editors reported, as gateways write both."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg

from contracts.dated_request_id import mint
from gateway.autocomplete.store import INSERT as REPORT

OWNERS = {UUID(int=number): (UUID(int=number * 10), UUID(int=number * 10 + 1)) for number in (1, 2)}
"""Organizations and their projects."""
TRACE = """
INSERT INTO gateway.request_traces
    (request_id, organization_id, project_id, key_id, endpoint, model, tier, status, error_code, total_ms, phases_ms,
     client, language, characters)
SELECT request_id, organization_id, project_id, project_id, 'fim', model, tier, status, error_code, total_ms, '{}',
       client, language, characters
  FROM unnest($1::text[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::smallint[], $7::text[], $8::float8[],
              $9::text[], $10::text[], $11::integer[])
    AS made (request_id, organization_id, project_id, model, tier, status, error_code, total_ms, client, language,
             characters)
"""
ENDINGS = ((200, None), (200, None), (200, None), (200, "superseded"), (499, "client_gone"), (503, "overloaded"))


class Completion(NamedTuple):
    """As TRACE takes it."""

    request_id: str
    organization_id: UUID
    project_id: UUID
    model: str
    tier: str
    status: int
    error_code: str | None
    total_ms: float
    client: str | None
    language: str | None
    characters: int | None


class Report(NamedTuple):
    """As the event store writes it."""

    request_id: str
    project_id: UUID
    choice_index: int
    view_id: str
    type: str
    organization_id: UUID
    characters: int | None
    elapsed_ms: int | None


def completions(choose: random.Random, begin: datetime, end: datetime, count: int) -> list[Completion]:
    """That arrived in a period."""
    found = []
    for _ in range(count):
        organization_id = choose.choice(list(OWNERS))
        status, error_code = choose.choice(ENDINGS)
        at = begin + timedelta(seconds=choose.uniform(0, (end - begin).total_seconds()))
        found.append(
            Completion(
                mint(at.timestamp()),
                organization_id,
                choose.choice(OWNERS[organization_id]),
                choose.choice(("coder", "small")),
                choose.choice(("autocomplete",) * 4 + ("chat",)),
                status,
                error_code,
                choose.lognormvariate(5, 1),
                choose.choice((None, "tabby-agent", "zed")),
                choose.choice((None, "python", "go")),
                choose.choice((None, 0, 1, 5, 40)),
            )
        )
    return found


def reports(choose: random.Random, made: Sequence[Completion], count: int) -> list[Report]:
    """Some of them about completions of other projects, which count for nobody."""
    found = {}
    for _ in range(count):
        about = choose.choice(made)
        owner = choose.choice((about.organization_id,) * 9 + tuple(OWNERS))
        project_id = about.project_id if about.project_id in OWNERS[owner] else choose.choice(OWNERS[owner])
        report = Report(
            about.request_id, project_id, choose.choice((0, 0, 0, 1)), choose.choice(("", "v1")),
            choose.choice(("view", "view", "select", "select_part", "dismiss")), owner,
            choose.choice((None, None, 3, 1_000)), None,
        )  # fmt: skip
        found[report[:5]] = report
    return sorted(found.values(), key=lambda report: report[:5])


async def write(
    connection: asyncpg.Connection[Any], made: Sequence[Completion] = (), told: Sequence[Report] = ()
) -> None:
    """Into the database, recorded now."""
    for statement, rows in ((TRACE, made), (REPORT, told)):
        if rows:
            await connection.execute(statement, *map(list, zip(*rows, strict=True)))
