"""What became of an organization's completions in editors, and how long they took.

Added up from the traces and the editors' reports when it is asked for: both are best effort, and forgotten together.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from msgspec import Struct, field
from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    Date,
    Double,
    FromClause,
    Subquery,
    and_,
    case,
    func,
    literal_column,
    null,
    select,
)

from contracts.errors import InvalidField
from contracts.generation import Tier
from gateway.admin.call import AdminCall
from gateway.admin.moments import moment
from gateway.admin.pages import page_of
from gateway.admin.schemas import ModelName, Moment, Name, Page, PageQuery
from gateway.autocomplete.tables import EventType, completion_events
from gateway.db.rows import columns_of, equal, fetchrow, record_of
from gateway.db.tables import request_traces
from gateway.metering.journal.request_id import first_at
from gateway.supersession.in_flight_request import SUPERSEDED

MOST = timedelta(days=92)
LAST_DAYS = timedelta(days=7)
UNKNOWN = "unknown"
SERVED, ABANDONED = 200, 499
TAKEN = (EventType.SELECT.value, EventType.SELECT_PART.value)
# As `request_id.arrived_at_s`: a completion belongs to the day of its request, whenever its trace was written.
DAY = literal_column(
    "(to_timestamp(('x' || substr(request_traces.request_id, 5, 12))::bit(48)::bigint / 1000.0) AT TIME ZONE 'UTC')"
    "::date",
    Date,
)


class AutocompleteGroup(StrEnum):
    """By what completions are told apart."""

    DAY = "day"
    LANGUAGE = "language"
    CLIENT = "client"
    MODEL = "model"
    PROJECT = "project"


class AutocompleteTotals(Struct, frozen=True, kw_only=True):
    """Completions of models of the autocomplete tier. What they are not grouped by is null.

    A showing is a completion's choice in one view of an editor. It was accepted when any of it was taken, and dismissed
    when it was rejected with nothing taken.
    """

    day: date | None
    """Of the requests' arrival (UTC)."""
    language: str | None
    """As the client named it; `unknown` when it did not, `other` for a name that is not known here."""
    client: str | None
    """Its family, by the User-Agent."""
    model: str | None
    project_id: UUID | None
    completions: int
    """Answered whole, with text."""
    empty: int
    """Answered whole and without text; warm-ups of the cache are among them."""
    abandoned: int
    """The client left before the end, as editors do at the next keystroke."""
    superseded: int
    """The client typed on without leaving: the answer was ended there, with text or without."""
    shown: int
    """Showings that an editor reported anything of."""
    accepted: int
    dismissed: int
    acceptance_rate: float | None
    """accepted / shown; null when nothing was shown."""
    characters_offered: int
    """In the first choices of completions whose characters were counted here."""
    characters_kept: int
    """Taken, as editors counted them, or all of a first choice that was taken whole without a count. Whether they were
    edited later is not known."""
    latency_p50_ms: float | None
    """Of completions: from the request's arrival to the answer's last byte; null without any."""
    latency_p95_ms: float | None


class AutocompleteQuery(PageQuery, frozen=True, kw_only=True):
    """Which completions. start, end: of the requests' arrival; the last seven days, unless given, and 92 at most.
    group_by may be given several times."""

    start: Moment | None = None
    end: Moment | None = None
    project_id: UUID | None = None
    model: ModelName | None = None
    language: Name | None = None
    client: Name | None = None
    group_by: list[AutocompleteGroup] = field(default_factory=list)

    def period(self) -> tuple[datetime, datetime]:
        """In UTC. Raises InvalidField."""
        end = datetime.now(UTC) if self.end is None else moment(self.end, "end")
        begin = end - LAST_DAYS if self.start is None else moment(self.start, "start")
        if begin >= end:
            raise InvalidField("Invalid value for 'end': it is not after 'start'.", param="end")
        if end - begin > MOST:
            raise InvalidField("Invalid value for 'start': at most 92 days are added up at once.", param="start")
        return begin, end


async def get_autocomplete(
    call: AdminCall, organization_id: UUID, query: AutocompleteQuery
) -> Page[AutocompleteTotals]:
    """How often an organization's completions were accepted, how much of them was kept, and how long they took.

    Grouped as asked, the newest day first.
    """
    await call.require_organization(organization_id)
    made = _completions(organization_id, query)
    became = _outcomes(_showings(organization_id, query), made)
    chosen = [made.c[_column_of(group)] for group in AutocompleteGroup if group in query.group_by]
    totals = (
        select(*chosen, *(value.label(name) for name, value in _computed(made, became).items()))
        .select_from(made.outerjoin(became, _same(made, became)))
        .group_by(*chosen)
        .subquery()
    )
    absent: dict[str, ColumnElement[Any]] = {
        _column_of(group): null() for group in AutocompleteGroup if group not in query.group_by
    }
    statement = select(*columns_of(AutocompleteTotals, totals, **absent))
    if not chosen:
        if query.cursor is not None:
            raise InvalidField("Invalid value for 'cursor': one total for all has no pages.", param="cursor")
        row = await fetchrow(call.connection, statement)
        return Page(data=[] if row is None else [record_of(AutocompleteTotals, row)], has_more=False, next_cursor=None)
    return await page_of(
        call.connection, AutocompleteTotals, statement, query, *(totals.c[column.key] for column in chosen)
    )


def _column_of(group: AutocompleteGroup) -> str:
    return "project_id" if group is AutocompleteGroup.PROJECT else group.value


def _arrived(request_id: ColumnElement[Any], query: AutocompleteQuery) -> ColumnElement[bool]:
    begin, end = query.period()
    return and_(request_id >= first_at(begin.timestamp()), request_id < first_at(end.timestamp()))


def _completions(organization_id: UUID, query: AutocompleteQuery) -> CTE:
    """One row for each, named and grouped as totals are."""
    table = request_traces.c
    language, client = func.coalesce(table.language, UNKNOWN), func.coalesce(table.client, UNKNOWN)
    return (
        select(
            *(table[name] for name in ("request_id", "project_id", "model", "status", "characters", "total_ms")),
            func.coalesce(table.error_code == SUPERSEDED, False).label("superseded"),
            DAY.label("day"),
            language.label("language"),
            client.label("client"),
        )
        .where(
            table.organization_id == organization_id,
            _arrived(table.request_id, query),
            table.tier == Tier.AUTOCOMPLETE.value,
            table.status.in_((SERVED, ABANDONED)),
            equal(table.project_id, query.project_id),
            equal(table.model, query.model),
            equal(language, query.language),
            equal(client, query.client),
        )
        .cte("made")
    )


def _showings(organization_id: UUID, query: AutocompleteQuery) -> Subquery:
    """What was reported, by showing; of completions of other organizations too, if somebody named them."""
    table = completion_events.c
    taken = table.type.in_(TAKEN)
    key = (table.request_id, table.project_id, table.choice_index, table.view_id)
    return (
        select(
            *key,
            func.bool_or(taken).label("accepted"),
            func.bool_or(table.type == EventType.DISMISS.value).label("dismissed"),
            func.bool_or(and_(table.type == EventType.SELECT.value, table.characters.is_(None))).label("whole"),
            func.coalesce(func.max(table.characters).filter(taken), 0).label("told"),
        )
        .where(table.organization_id == organization_id, _arrived(table.request_id, query))
        .group_by(*key)
        .subquery("showing")
    )


def _outcomes(showing: Subquery, made: CTE) -> Subquery:
    """The showings of each completion that the reporting project made."""
    each, first = showing.c, showing.c.choice_index == 0
    kept = case(
        (and_(first, each.whole, made.c.characters.is_not(None)), made.c.characters),
        (first, func.least(each.told, made.c.characters)),  # nobody keeps more than there was; PostgreSQL skips a null
        else_=each.told,
    )
    return (
        select(
            each.request_id,
            each.project_id,
            func.count().label("shown"),
            func.count().filter(each.accepted).label("accepted"),
            func.count().filter(each.dismissed, ~each.accepted).label("dismissed"),
            func.sum(kept).filter(each.accepted).label("kept"),
        )
        .select_from(showing.join(made, _same(made, showing)))
        .group_by(each.request_id, each.project_id)
        .subquery("became")
    )


def _same(made: FromClause, other: FromClause) -> ColumnElement[bool]:
    return and_(made.c.request_id == other.c.request_id, made.c.project_id == other.c.project_id)


def _computed(made: CTE, became: Subquery) -> dict[str, ColumnElement[Any]]:
    """The totals of one group."""

    def total(column: ColumnElement[Any]) -> ColumnElement[int]:
        return func.coalesce(func.sum(column), 0).cast(BigInteger)

    served = and_(made.c.status == SERVED, ~made.c.superseded)
    offered = and_(served, func.coalesce(made.c.characters, 1) > 0)

    def latency(share: str) -> ColumnElement[float]:
        # an aggregate over an ordered set passes nulls over
        return func.percentile_cont(literal_column(share)).within_group(case((offered, made.c.total_ms)))

    shown, accepted = total(became.c.shown), total(became.c.accepted)
    return {
        "completions": func.count().filter(offered),
        "empty": func.count().filter(served, made.c.characters == 0),
        "abandoned": func.count().filter(made.c.status == ABANDONED),
        "superseded": func.count().filter(made.c.superseded),
        "shown": shown,
        "accepted": accepted,
        "dismissed": total(became.c.dismissed),
        "acceptance_rate": accepted.cast(Double) / func.nullif(shown, 0),
        "characters_offered": total(case((served, made.c.characters))),
        "characters_kept": total(became.c.kept),
        "latency_p50_ms": latency("0.5"),
        "latency_p95_ms": latency("0.95"),
    }
