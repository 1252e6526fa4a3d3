"""`slipstream releases reviews`: reviewers compare two answers without knowing which one is the candidate's."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import UUID

import click
import msgspec

from contracts.errors import ConfigError
from contracts.printable import printable
from slipstream.commands.options import Deployment, Function, deployment_options
from slipstream.table import table

if TYPE_CHECKING:
    from control.api.call import AdminCall
    from control.shadow.reviewing import Review, Vote
    from control.shadow.reviews import NextReview
    from control.shadow.shadow import ShadowQuery
    from evals.statistics.interval import Estimate

CHOICES = ("left", "right", "both", "neither", "skip")
QUIT = "quit"
HEAD = (
    "release",
    "model",
    "stage",
    "reviews",
    "with texts",
    "better",
    "worse",
    "both",
    "neither",
    "skipped",
    "preferred",
)
MAX_COLUMNS = 100
"""Longest line of text; longer ones are hard to read."""


@click.group()
def reviews() -> None:
    """Vote blindly between a candidate's responses and those that customers got.

    \b
    Examples:
      slipstream releases reviews next
      slipstream releases reviews vote 6f0c1c52-6f63-4d6b-9f3e-0f6a3b0f3a11 left
      slipstream releases reviews list
    """


def filters(command: Function) -> Function:
    """Add the options that all commands but `vote` take."""
    command = click.option("--release", help="Only pairs of the release with this id.")(command)
    return click.option("--model", help="Only pairs of this model.")(command)


@reviews.command(name="next")
@deployment_options
@filters
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, and prompt for no vote.")
def next_command(deployment: Deployment, release: str | None, model: str | None, as_json: bool) -> None:
    """Show the next pair that you have not voted on. In a terminal, prompt for votes until you quit."""
    interactive = not as_json and in_terminal()
    while True:
        found = _next(deployment, release, model)
        if as_json:
            print(msgspec.json.encode(found).decode())
            return
        if found.review is None:
            print("no review is waiting for you")
            return
        print("\n".join(shown(found.review, found.waiting)))
        if not interactive:
            print(f"vote: slipstream releases reviews vote {found.review.id} {'|'.join(CHOICES)}")
            return
        choice = click.prompt("better", type=click.Choice((*CHOICES, QUIT)))
        if choice == QUIT:
            return
        _print(_vote(deployment, found.review.id, choice), as_json=False)


@reviews.command()
@deployment_options
@click.argument("review_id")
@click.argument("choice", type=click.Choice(CHOICES))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def vote(deployment: Deployment, review_id: str, choice: str, as_json: bool) -> None:
    """Vote on REVIEW_ID: the better response, both, neither, or skip. A vote is final."""
    _print(_vote(deployment, _id(review_id), choice), as_json)


@reviews.command(name="list")
@deployment_options
@filters
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def list_command(deployment: Deployment, release: str | None, model: str | None, as_json: bool) -> None:
    """Print the results of the votes, by release, model and stage.

    `preferred` is the share of sessions with a decisive vote whose first decisive vote was for the candidate, with its
    95 % interval.
    """
    from control.shadow.reviews import list_reviews
    from slipstream.administration import administer

    found = administer(deployment, lambda call: list_reviews(call, _query(release, model))).data
    if as_json:
        for each in found:
            print(msgspec.json.encode(each).decode())
        return
    rows = [
        (
            each.release or "-",
            each.model,
            stage(each.stage_share),
            *(f"{count:,}" for count in (each.reviews, each.waiting, each.better, each.worse)),
            *(f"{count:,}" for count in (each.both, each.neither, each.skipped)),
            percent(each.preferred),
        )
        for each in found
    ]
    print("\n".join(table(HEAD, rows)) if rows else "there are no reviews")


def in_terminal() -> bool:
    """Whether a person can answer a prompt."""
    return sys.stdin.isatty()


def shown(review: Review, waiting: int) -> Iterator[str]:
    """A pair as lines for a terminal, without control characters. waiting: the number of pairs, with this one."""
    width = min(shutil.get_terminal_size().columns, MAX_COLUMNS)
    yield f"review {review.id} of {waiting}: model {printable(review.model)}, {review.votes} other votes"
    for name, text in (("asked", review.prompt), ("LEFT", review.left), ("RIGHT", review.right)):
        yield f"── {name} " + "─" * max(width - len(name) - 4, 0)
        for line in text.split("\n"):
            yield from textwrap.wrap(printable(line), width, drop_whitespace=False) or [""]
    yield "─" * width


def stage(share: float | None) -> str:
    """A release's stage, by the candidate's share of the sessions; "-" for copies of older versions, which lack it."""
    if share is None:
        return "-"
    return f"{100 * share:.4g} %" if share else "shadow"


def percent(estimate: Estimate) -> str:
    """A share with its interval, as text."""
    if estimate.value is None or estimate.lower is None or estimate.upper is None:
        return "-"
    return f"{estimate.value:.1%} ({estimate.lower:.1%} to {estimate.upper:.1%}) of {estimate.units:,}"


def _next(deployment: Deployment, release: str | None, model: str | None) -> NextReview:
    from control.shadow.reviews import next_review
    from slipstream.administration import administer

    return administer(deployment, lambda call: next_review(call, _query(release, model)))


def _vote(deployment: Deployment, review_id: UUID, choice: str) -> Vote:
    from control.shadow.reviews import NewVote, create_vote
    from slipstream.administration import administer, converted

    body = converted({"choice": choice}, NewVote)

    async def work(call: AdminCall) -> Vote:
        return await create_vote(call, review_id, body)

    return administer(deployment, work)


def _query(release: str | None, model: str | None) -> ShadowQuery:
    from control.shadow.shadow import ShadowQuery

    return ShadowQuery(release=release, model=model)


def _print(made: Vote, as_json: bool) -> None:
    if as_json:
        print(msgspec.json.encode(made).decode())
    else:
        print(f"voted {made.choice.value}; the candidate's answer was the {made.candidate.value} one")


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise ConfigError(f"{text!r} is not the id of a review; `slipstream releases reviews next` shows one") from None
