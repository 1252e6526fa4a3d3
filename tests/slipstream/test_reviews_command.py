"""Reviews and pairs as a terminal shows them."""

from __future__ import annotations

import msgspec
import pytest
from click.testing import CliRunner

from control.api.examples import example_of
from control.shadow.reviewing import Position, Review, Vote
from control.shadow.reviews import NextReview
from control.shadow.sums import ShadowSums
from control.shadow.tables import Choice
from evals.statistics.interval import Estimate
from slipstream.__main__ import cli
from slipstream.commands import reviews
from slipstream.commands.reviews import percent, shown, stage
from slipstream.commands.shadow import lines_of

REVIEW = msgspec.convert(example_of(Review), Review)


def test_nothing_in_an_answer_moves_the_cursor() -> None:
    review = msgspec.structs.replace(REVIEW, left="a\x1b[2Jb\nsecond", right="x" * 300)
    lines = list(shown(review, 7))
    text = "\n".join(lines)
    assert "\x1b" not in text
    assert "a\\x1b[2Jb" in lines
    assert "second" in lines
    assert text.count("x" * 20) >= 3, "wrapped"
    assert "of 7" in lines[0]


def test_shares_and_ratios_are_told_with_their_intervals() -> None:
    assert percent(Estimate(0.25, 0.125, 0.5, 80, 40)) == "25.0% (12.5% to 50.0%) of 40"
    assert percent(Estimate(None, None, None, 0, 0)) == "-"
    found = msgspec.convert(example_of(ShadowSums), ShadowSums)
    ttft = Estimate(1.5, 1.25, 1.75, 80, 40)
    text = "\n".join(lines_of(msgspec.structs.replace(found, ttft=ttft, length=Estimate(2.0, None, None, 1, 1))))
    assert "1.50 (1.25 to 1.75) of 40" in text
    assert "2.00 of 1" in text


def test_a_stage_is_told_as_releases_name_it() -> None:
    assert [stage(share) for share in (0.0, 0.01, 0.125, None)] == ["shadow", "1 %", "12.5 %", "-"]
    found = msgspec.structs.replace(msgspec.convert(example_of(ShadowSums), ShadowSums), release="r1", pairs=9)
    assert next(lines_of(msgspec.structs.replace(found, stage_share=0.25))).endswith(
        f"in release r1, stage 25 %: 9 pairs of {found.units:,} sessions"
    )


def test_a_person_votes_until_they_quit(monkeypatch: pytest.MonkeyPatch) -> None:
    votes: list[str] = []

    def voted(deployment: object, review_id: object, choice: str) -> Vote:
        votes.append(choice)
        return Vote(review_id=REVIEW.id, choice=Choice(choice), candidate=Position.RIGHT)

    monkeypatch.setattr(reviews, "_next", lambda *_: NextReview(review=REVIEW, waiting=2))
    monkeypatch.setattr(reviews, "_vote", voted)
    monkeypatch.setattr(reviews, "in_terminal", lambda: True)
    result = CliRunner().invoke(cli, ["releases", "reviews", "next"], input="left\nup\nneither\nquit\n")
    assert result.exit_code == 0, result.output
    assert votes == ["left", "neither"]
    assert "the candidate's answer was the right one" in result.output
    monkeypatch.setattr(reviews, "in_terminal", lambda: False)
    told = CliRunner().invoke(cli, ["releases", "reviews", "next"]).output
    assert f"slipstream releases reviews vote {REVIEW.id} left|right|both|neither|skip" in told
