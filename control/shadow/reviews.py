"""Pairs of answers that people compare without knowing which is the candidate's: the queue, the votes, their sums."""

from __future__ import annotations

from uuid import UUID

import msgspec

from control.api.call import AdminCall
from control.api.principal import NO_KEY
from control.api.schemas import Body
from control.shadow import reviewing
from control.shadow.reviewing import Review, ReviewSums, Vote
from control.shadow.shadow import ShadowQuery
from control.shadow.tables import Choice


class NextReview(msgspec.Struct, frozen=True, kw_only=True):
    """review: null if none is left for this reviewer. waiting: the number of reviews left, including this one."""

    review: Review | None
    waiting: int


class ReviewReport(msgspec.Struct, frozen=True, kw_only=True):
    """By release, model and stage, newest first."""

    data: list[ReviewSums]


class NewVote(Body, frozen=True, kw_only=True):
    """choice: `left` or `right` for the better answer, `both` if both are good, `neither` if both are bad, `skip` for
    no opinion."""

    choice: Choice


async def next_review(call: AdminCall, query: ShadowQuery) -> NextReview:
    """Get the next pair to compare, without revealing the candidate's answer.

    Pairs come from projects whose `allow_reviews` is on, if `gateway.shadow.review_share` stores texts. Pairs with the
    fewest votes come first. Pairs on which the caller has voted are left out.
    """
    reviewer = _reviewer(call)
    review = await reviewing.next_review(call.connection, reviewer, release=query.release, model=query.model)
    waiting = await reviewing.waiting(call.connection, reviewer, release=query.release, model=query.model)
    return NextReview(review=review, waiting=waiting)


async def create_vote(call: AdminCall, review_id: UUID, body: NewVote) -> Vote:
    """Vote on a pair. The vote is final, and the response names the candidate's side.

    A second vote gets 409. The response is 404 once the pair's texts are deleted.
    """
    made = await reviewing.vote(call.connection, review_id, _reviewer(call), body.choice)
    call.audit("review.vote", review_id, organization_id=None, after=made)
    return made


async def list_reviews(call: AdminCall, query: ShadowQuery) -> ReviewReport:
    """Get the numbers of reviews and their votes by release, model and stage, without texts."""
    return ReviewReport(data=await reviewing.sums(call.connection, release=query.release, model=query.model))


def _reviewer(call: AdminCall) -> str:
    """The reviewer: one for each member or service account, whichever key it uses, and each account of the machine."""
    principal = call.principal
    return f"account {principal.name}" if principal.key_id == NO_KEY else str(principal.id)
