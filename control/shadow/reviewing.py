"""The queue of reviews: a reviewer's next pair, its texts, and the sums of votes.

Reviews are blind: the candidate's side was drawn when the pair was stored, and is shown only after a vote.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg
import msgspec
from sqlalchemy import and_, case, exists, func, select
from sqlalchemy.dialects.postgresql import insert

from contracts.errors import Conflict, NotFound
from control.shadow.tables import Choice, review_coins, review_votes, reviews
from evals.statistics.interval import Estimate, wilson
from storage.rows import equal, fetch, fetchrow, fetchval

VOTES = {"better": "better", "worse": "worse", "both": "both", "neither": "neither", "skip": "skipped"}
"""The counts of each review, with their names in the sums."""
_R, _V = reviews.c, review_votes.c


class Position(StrEnum):
    """Where an answer is shown."""

    LEFT = "left"
    RIGHT = "right"


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """A pair for review: one question and two answers, without the candidate's side."""

    id: UUID
    model: str
    release: str
    prompt: str
    left: str
    right: str
    votes: int
    """The number of other reviewers' votes so far."""
    recorded_at: datetime


class Vote(msgspec.Struct, frozen=True, kw_only=True):
    """A vote that counts. candidate: the side on which the candidate's answer was shown."""

    review_id: UUID
    choice: Choice
    candidate: Position


class ReviewSums(msgspec.Struct, frozen=True, kw_only=True):
    """Sums of one release, model and stage. stage_share: the candidate's share of the sessions in that stage; 0 in the
    shadow stage, null if it was not recorded. waiting: reviews whose texts are still stored. better, worse, both,
    neither, skipped: votes about the candidate's answer. preferred: the share of sessions whose first decisive vote was
    for the candidate."""

    release: str
    model: str
    stage_share: float | None
    reviews: int
    waiting: int
    better: int
    worse: int
    both: int
    neither: int
    skipped: int
    preferred: Estimate


class Coins(NamedTuple):
    """Sessions by their first decisive vote: whether the candidate's answer was the worse or the better one."""

    worse: int
    better: int


async def next_review(
    connection: asyncpg.Connection[Any], reviewer: str, *, release: str | None, model: str | None
) -> Review | None:
    """The pair with the fewest votes that this reviewer has not voted on, oldest first; None if there is none."""
    votes = select(func.count()).where(_V.review_id == _R.id, _V.choice != Choice.SKIP.value).scalar_subquery()
    seen = exists().where(_V.review_id == _R.id, _V.reviewer == reviewer)
    row = await fetchrow(
        connection,
        select(
            _R.id,
            _R.model,
            _R.release,
            _R.prompt,
            case((_R.candidate_left, _R.candidate), else_=_R.baseline).label("left"),
            case((_R.candidate_left, _R.baseline), else_=_R.candidate).label("right"),
            votes.label("votes"),
            _R.recorded_at,
        )
        .where(_R.prompt.is_not(None), ~seen, equal(_R.release, release), equal(_R.model, model))
        .order_by(votes, _R.recorded_at, _R.id)
        .limit(1),
    )
    return None if row is None else msgspec.convert(dict(row), Review)


async def waiting(connection: asyncpg.Connection[Any], reviewer: str, *, release: str | None, model: str | None) -> int:
    """How many pairs this reviewer may still vote on."""
    seen = exists().where(_V.review_id == _R.id, _V.reviewer == reviewer)
    where = and_(_R.prompt.is_not(None), ~seen, equal(_R.release, release), equal(_R.model, model))
    found: int = await fetchval(connection, select(func.count()).select_from(reviews).where(where))
    return found


async def vote(connection: asyncpg.Connection[Any], review_id: UUID, reviewer: str, choice: Choice) -> Vote:
    """Store a final vote, in the caller's transaction. Raises NotFound if the review does not exist or its texts were
    deleted, and Conflict for a second vote."""
    row = await fetchrow(
        connection,
        # locked: the texts must not be deleted during the vote
        select(_R.release, _R.unit, _R.candidate_left, _R.prompt)
        .where(_R.id == review_id)
        .with_for_update(key_share=True),
    )
    if row is None or row["prompt"] is None:
        raise NotFound(f"There is no review {review_id}, or its texts were deleted; request the next one.")
    voted = insert(review_votes).values(review_id=review_id, reviewer=reviewer, choice=choice.value)
    if await fetchval(connection, voted.on_conflict_do_nothing().returning(_V.review_id)) is None:
        raise Conflict(
            "You have already voted on this pair, and have seen which response is whose; request the next one."
        )
    candidate = Position.LEFT if row["candidate_left"] else Position.RIGHT
    if choice in (Choice.LEFT, Choice.RIGHT) and row["release"]:
        coin = insert(review_coins).values(
            release=row["release"], unit=row["unit"], worse=choice.value != candidate.value
        )
        await fetch(connection, coin.on_conflict_do_nothing())
    return Vote(review_id=review_id, choice=choice, candidate=candidate)


async def coins(connection: asyncpg.Connection[Any], release: str) -> Coins:
    """The sessions that a release's judge counts; their number never falls during a release."""
    row = await fetchrow(
        connection,
        select(
            func.count().filter(review_coins.c.worse).label("worse"),
            func.count().filter(~review_coins.c.worse).label("better"),
        ).where(review_coins.c.release == release),
    )
    assert row is not None
    return Coins(row["worse"], row["better"])


async def sums(
    connection: asyncpg.Connection[Any], *, release: str | None = None, model: str | None = None
) -> list[ReviewSums]:
    """Sums of every release, model and stage with reviews, or of one release or model, the newest first.

    A session whose first decisive vote was on a review of another stage counts in that stage."""
    picked = case((_R.candidate_left, Choice.LEFT.value), else_=Choice.RIGHT.value)
    decisive = _V.choice.in_([Choice.LEFT.value, Choice.RIGHT.value])
    of_votes = (
        select(
            _V.review_id,
            func.count().filter(decisive, _V.choice == picked).label("better"),
            func.count().filter(decisive, _V.choice != picked).label("worse"),
            *(
                func.count().filter(_V.choice == choice.value).label(choice.value)
                for choice in (Choice.BOTH, Choice.NEITHER, Choice.SKIP)
            ),
        )
        .join(reviews, _R.id == _V.review_id)
        .group_by(_V.review_id)
        .subquery()
    )
    counts = of_votes.c
    firsts = (
        select(_R.release, _R.model, _R.unit, _R.stage_share, (_V.choice == picked).label("better"))
        .join(review_votes, _V.review_id == _R.id)
        .where(decisive)
        .distinct(_R.release, _R.model, _R.unit)
        .order_by(_R.release, _R.model, _R.unit, _V.voted_at, _V.reviewer)
        .subquery()
    )
    counted = (
        select(
            firsts.c.release,
            firsts.c.model,
            firsts.c.stage_share,
            func.count().label("units"),
            func.count().filter(firsts.c.better).label("preferred"),
        )
        .group_by(firsts.c.release, firsts.c.model, firsts.c.stage_share)
        .subquery()
    )
    statement = (
        select(
            _R.release,
            _R.model,
            _R.stage_share,
            func.count().label("reviews"),
            func.count(_R.prompt).label("waiting"),
            *(
                func.coalesce(func.sum(counts[name]), 0).label(label)
                for name, label in VOTES.items()
            ),
            func.coalesce(func.max(counted.c.units), 0).label("units"),
            func.coalesce(func.max(counted.c.preferred), 0).label("preferred"),
        )
        .select_from(
            reviews.outerjoin(of_votes, counts.review_id == _R.id).outerjoin(
                counted,
                and_(
                    counted.c.release == _R.release,
                    counted.c.model == _R.model,
                    counted.c.stage_share.is_not_distinct_from(_R.stage_share),
                ),
            )
        )
        .where(equal(_R.release, release), equal(_R.model, model))
        .group_by(_R.release, _R.model, _R.stage_share)
        .order_by(func.max(_R.recorded_at).desc(), _R.release, _R.model, _R.stage_share.desc())
    )  # fmt: skip
    return [_told(row) for row in await fetch(connection, statement)]


def _told(row: asyncpg.Record) -> ReviewSums:
    values = dict(row)
    units, preferred = values.pop("units"), values.pop("preferred")
    value = preferred / units if units else None
    lower, upper = (None, None) if value is None else wilson(value, units)
    values |= {name: int(values[name]) for name in VOTES.values()}
    return ReviewSums(**values, preferred=Estimate(value, lower, upper, units, units))
