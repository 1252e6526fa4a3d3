"""Reports one session of an organization's client: its turns in order, the gaps between them, and the prompt tokens
that an engine computed again although the previous turn had them, with the cause."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import Meta
from sqlalchemy import select
from sqlalchemy.sql.expression import literal

from contracts.dated_request_id import arrived_at_s
from contracts.prefix import BLOCK_TOKENS
from control.api.call import AdminCall, not_found
from control.api.schemas import Query
from control.prefixes.tables import prefix_samples
from control.requests.requests import AMOUNT_MICRO, DECISION, Decision, session_names
from storage.rows import fetch
from storage.tables.core import request_traces

MAX_TURNS = 1_000
MIN_LOST_TOKENS = BLOCK_TOKENS
"""Engines cache whole blocks of a prompt, so fewer tokens do not count as lost."""


class EngineLoss(StrEnum):
    """Causes on the engines' side: the prompt began like the previous one. All other causes are those of the prefix
    contract (`gateway/prefixes/difference.py`)."""

    NOT_CACHED = "not_cached"
    """The engine no longer had the earlier prompt."""
    MOVED = "moved"
    """The turn ran on another engine than the previous one."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a session. agent: the agent within the session; null for the first agent. parent: the agent or
    session that started it. gap_ms: the time from the end of the agent's previous turn to this arrival; negative if
    that turn was still running.

    lost_tokens: tokens of the agent's previous prompt that an engine computed again; null if unknown. cause: where the
    prompt began to differ from earlier ones, or `not_cached`; null if no token was lost or the cause is unknown.
    amount_micro: the billed amount, in millionths of the currency.
    """

    request_id: str
    arrived_at: datetime
    agent: str | None
    parent: str | None
    decision: Decision
    status: int
    error_code: str | None
    endpoint: str | None
    model: str | None
    prompt_tokens: int | None
    cached_tokens: int | None
    lost_tokens: int | None
    cause: str | None
    completion_tokens: int | None
    amount_micro: int
    gap_ms: float | None
    ttft_ms: float | None
    total_ms: float


class SessionReport(msgspec.Struct, frozen=True, kw_only=True):
    """A session's turns, earliest first, and their sums. prompt_tokens: of turns that an engine computed. has_more:
    whether earlier turns were left out, also of the sums."""

    session: str
    turns: int
    agents: int
    prompt_tokens: int
    cached_tokens: int
    lost_tokens: int
    completion_tokens: int
    amount_micro: int
    has_more: bool
    data: list[Turn]


class SessionQuery(Query, frozen=True, kw_only=True):
    """limit: the maximum number of turns. The newest turns are returned."""

    limit: Annotated[int, Meta(ge=1, le=MAX_TURNS)] = MAX_TURNS


async def get_session(call: AdminCall, organization_id: UUID, name: str, query: SessionQuery) -> SessionReport:
    """Show a session by the name that its client gave it: turns, gaps, cached and lost tokens, and cost."""
    await call.require_organization(organization_id)
    traces, samples = request_traces.c, prefix_samples.c
    rows = await fetch(
        call.connection,
        select(
            request_traces,
            DECISION.label("decision"),
            AMOUNT_MICRO.label("amount_micro"),
            samples.reusable_tokens,
            samples.cause,
        )
        .outerjoin(prefix_samples, samples.request_id == traces.request_id)
        .where(
            traces.organization_id == organization_id, traces.session.in_(session_names(call, name, organization_id))
        )
        .order_by(traces.request_id.desc())
        .limit(literal(query.limit + 1, literal_execute=True)),
    )
    if not rows:
        raise not_found("session", name)
    turns = turns_of(reversed(rows[: query.limit]), placed=call.principal.operator)
    return SessionReport(
        session=rows[0]["session"],
        turns=len(turns),
        agents=len({turn.agent for turn in turns}),
        prompt_tokens=sum(turn.prompt_tokens or 0 for turn in turns if turn.completion_tokens is not None),
        cached_tokens=sum(turn.cached_tokens or 0 for turn in turns),
        lost_tokens=sum(turn.lost_tokens or 0 for turn in turns),
        completion_tokens=sum(turn.completion_tokens or 0 for turn in turns),
        amount_micro=sum(turn.amount_micro for turn in turns),
        has_more=len(rows) > query.limit,
        data=turns,
    )


def turns_of(rows: Iterable[Mapping[str, Any]], *, placed: bool) -> list[Turn]:
    """Turns from rows of traces with their prefix samples, the earliest first. placed: report a change of the engine,
    which tenants do not see."""
    turns: list[Turn] = []
    ended_s: dict[str | None, float] = {}
    computed: dict[tuple[str | None, str | None], Mapping[str, Any]] = {}
    for row in rows:
        agent, key = row["session_agent"], (row["session_agent"], row["model"])
        at_s = arrived_at_s(row["request_id"])
        if at_s is None:  # the client chose the id
            at_s = row["recorded_at"].timestamp() - row["total_ms"] / 1e3
        before_s = ended_s.get(agent)
        lost, cause = _loss(computed.get(key), row, placed=placed)
        ended_s[agent] = at_s + row["total_ms"] / 1e3
        if row["prompt_tokens"] is not None and row["cached_tokens"] is not None:
            computed[key] = row
        known = {name: row.get(name) for name in Turn.__struct_fields__}
        own = {
            "arrived_at": datetime.fromtimestamp(at_s, UTC),
            "agent": agent,
            "parent": row["session_parent"],
            "lost_tokens": lost,
            "cause": cause,
            "gap_ms": None if before_s is None else round((at_s - before_s) * 1e3, 3),
        }
        turns.append(msgspec.convert({**known, **own}, Turn))
    return turns


def _loss(before: Mapping[str, Any] | None, row: Mapping[str, Any], *, placed: bool) -> tuple[int | None, str | None]:
    """Tokens that the previous turn had computed and this turn's engine computed again, and the cause."""
    if row["prompt_tokens"] is None or row["cached_tokens"] is None:
        return None, None
    if before is None:
        return 0, None
    both = min(before["prompt_tokens"], row["prompt_tokens"])
    lost = both - row["cached_tokens"]
    if lost < MIN_LOST_TOKENS:
        return 0, None
    if row["reusable_tokens"] is None:
        return lost, None
    if both - row["reusable_tokens"] >= max(MIN_LOST_TOKENS, lost // 2):  # the prompt's change explains most
        return lost, row["cause"]
    moved = placed and row["replica_id"] != before["replica_id"]
    return lost, (EngineLoss.MOVED if moved else EngineLoss.NOT_CACHED).value
