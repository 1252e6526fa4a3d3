"""Judges requests in SQL, like `judgement.py` but whole minutes at once. All sums of requests within their objectives,
in the worker, the admin API or at the command line, select from here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    DateTime,
    Select,
    Subquery,
    and_,
    bindparam,
    case,
    false,
    func,
    or_,
    select,
)
from sqlalchemy.dialects.postgresql import UUID as UUID_TYPE
from sqlalchemy.sql.expression import literal_column

from contracts.dated_request_id import FIRST_DATED, PAST_DATED
from contracts.errors import Overloaded
from contracts.length_class import LONG_TOKENS, MEDIUM_TOKENS, LengthClass
from contracts.service_class import ServiceClass
from contracts.split import Side
from control.slo.judgement import CLIENT_GONE, FAILED, REFUSED, SUPERSEDED
from control.slo.tables import slo_objectives
from storage.tables.core import request_traces

NOWHERE = ""
"""In place of a missing pool or model: a key has no null."""
NO_PROJECT = UUID(int=0)
_T, _O = request_traces.c, slo_objectives.c


def _text(value: str) -> ColumnElement[str]:
    """A constant in the statement's text: PostgreSQL may plan without the value of a parameter."""
    return literal_column(f"'{value}'")


# Like `dated_request_id.arrived_at_s`. Only where DATED holds: another id may have no digits there.
MINUTE: ColumnElement[Any] = func.to_timestamp(
    literal_column("('x' || substr(request_traces.request_id, 5, 12))::bit(48)::bigint / 60000 * 60", BigInteger),
    type_=DateTime(timezone=True),
)
"""The minute in which a request arrived."""
DATED: ColumnElement[bool] = and_(_T.request_id >= _text(FIRST_DATED), _T.request_id < _text(PAST_DATED))
"""The id carries a time."""


def _shorter_than(tokens: int) -> ColumnElement[bool]:
    return func.coalesce(_T.prompt_tokens, literal_column("0")) < literal_column(str(tokens))


def _ended_by(code: str) -> ColumnElement[bool]:
    """Whether a request ended with this error code; empty for none."""
    return func.coalesce(_T.error_code, _text("")) == _text(code)


LENGTH: ColumnElement[str] = case(
    (_shorter_than(MEDIUM_TOKENS), _text(LengthClass.SHORT)),
    (_shorter_than(LONG_TOKENS), _text(LengthClass.MEDIUM)),
    else_=_text(LengthClass.LONG),
)
"""The length class. A prompt that was never counted, because its request failed before, is a short one."""
REFUSED_LATER: ColumnElement[bool] = and_(_T.status < 300, or_(*map(_ended_by, REFUSED)))
"""The request itself was refused, after a status of success."""
_OK = and_(_T.status >= 200, _T.status < 300)
_FAILED: ColumnElement[bool] = literal_column(FAILED, Boolean)
_ABANDONED = and_(_ended_by(CLIENT_GONE), or_(_T.ttft_ms.is_(None), ~_OK))
_ANSWERED = and_(
    _OK,
    or_(
        and_(_ended_by(""), or_(_T.ttft_ms.is_not(None), _T.completion_tokens.is_not(None))),
        and_(_ended_by(CLIENT_GONE), _T.ttft_ms.is_not(None)),
    ),
)
_PROMISED = _O.version.is_not(None)


def _kept(measured: ColumnElement[Any], promised: ColumnElement[Any]) -> ColumnElement[bool]:
    return and_(_PROMISED, _ANSWERED, or_(promised.is_(None), measured.is_(None), measured <= promised))


def judged(
    version: ColumnElement[int], *conditions: ColumnElement[bool], extra: Sequence[ColumnElement[Any]] = ()
) -> Subquery:
    """A row for each request of a known tier that meets the conditions (on `request_traces`).

    version: of the objectives that judge it. extra: further columns of `request_traces`.
    """
    ttft_kept = _kept(func.coalesce(_T.ttft_ms, _T.total_ms), _O.ttft_ms)
    tpot_kept, gap_kept = _kept(_T.tpot_ms, _O.tpot_ms), _kept(_T.itl_max_ms, _O.itl_max_ms)
    promised = func.coalesce(_T.service_class, _text("")) != _text(ServiceClass.OFFLINE)
    objective = and_(_O.version == version, _O.tier == _T.tier, _O.length == LENGTH, promised)
    return (
        select(
            MINUTE.label("minute"),
            _T.organization_id,
            func.coalesce(_T.project_id, literal_column(f"'{NO_PROJECT}'::uuid", UUID_TYPE)).label("project_id"),
            _T.tier,
            LENGTH.label("length"),
            func.coalesce(_T.model, _text(NOWHERE)).label("model"),
            func.coalesce(_T.pool, _text(NOWHERE)).label("pool"),
            func.coalesce(_T.side, _text(Side.BASELINE)).label("side"),
            promised.label("is_waited_for"),
            and_(_PROMISED, or_(_FAILED, _ANSWERED)).label("is_counted"),
            _FAILED.label("is_failed"),
            _ended_by(Overloaded.code).label("is_shed"),
            and_(_PROMISED, _FAILED, func.coalesce(_T.over_share, false())).label("is_over_share"),
            (_T.status == 429).label("is_limited"),
            _ABANDONED.label("is_abandoned"),
            _ended_by(SUPERSEDED).label("is_superseded"),
            and_(ttft_kept, tpot_kept, gap_kept).label("is_good"),
            ttft_kept.label("is_ttft_kept"),
            tpot_kept.label("is_tpot_kept"),
            gap_kept.label("is_gap_kept"),
            func.coalesce(_T.prompt_tokens, literal_column("0")).label("prompt_tokens"),
            func.coalesce(_T.cached_tokens, literal_column("0")).label("cached_tokens"),
            func.coalesce(_T.completion_tokens, literal_column("0")).label("completion_tokens"),
            _T.ttft_ms,
            _T.tpot_ms,
            _T.itl_max_ms,
            *extra,
        )
        .select_from(request_traces.outerjoin(slo_objectives, objective))
        .where(DATED, _T.tier.is_not(None), *conditions)
        .subquery("judged")
    )


def counts(each: Subquery) -> dict[str, ColumnElement[Any]]:
    """The sums over judged requests, by the names of `tables.COUNTS`."""
    columns = each.c
    flags = ("counted", "failed", "shed", "limited", "abandoned", "superseded")
    kept = ("good", "ttft_kept", "tpot_kept", "gap_kept", "over_share")

    def total(column: ColumnElement[Any]) -> ColumnElement[int]:
        return func.coalesce(func.sum(column), literal_column("0")).cast(BigInteger)

    return {
        "requests": func.count(),
        **{name: func.count().filter(columns[f"is_{name}"]) for name in (*flags, *kept)},
        **{name: total(columns[name]) for name in ("prompt_tokens", "cached_tokens", "completion_tokens")},
        "good_tokens": total(case((columns.is_good, columns.completion_tokens), else_=literal_column("0"))),
    }


VERSION: ColumnElement[int] = bindparam("version", type_=BigInteger)


def newest_version() -> Select[tuple[int]]:
    """The version of the objectives in force; null before the first."""
    return select(func.max(_O.version))
