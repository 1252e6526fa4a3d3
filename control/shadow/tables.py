"""Pairs of answers, their reviews by people, and the votes.

Pairs are numbers. Only reviews have texts, of organizations that store prompts, and they lose these when the
organization no longer does; votes stay, as numbers.
"""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import UUID

from gateway.shadow.pair import Outcome
from storage.tables.core import id_column, metadata, one_of


class Choice(StrEnum):
    """A reviewer's choice between two answers."""

    LEFT = "left"
    """The left one is better."""
    RIGHT = "right"
    """The right one is better."""
    BOTH = "both"
    """Both are equally good."""
    NEITHER = "neither"
    """Both are bad."""
    SKIP = "skip"
    """The reviewer has no opinion."""


# Written best effort, like the traces. No organization: a unit is a keyed hash of an organization and its session.
shadow_pairs = Table(
    "shadow_pairs",
    metadata,
    # The id of the customer's request.
    Column("id", Text(collation="C"), primary_key=True),
    Column("model", Text, nullable=False),
    # Empty if no release made the split.
    Column("release", Text, nullable=False),
    Column("baseline_pool", Text, nullable=False),
    Column("candidate_pool", Text, nullable=False),
    Column("unit", BigInteger, nullable=False),
    Column("prompt_tokens", Integer, nullable=False),
    Column("greedy", Boolean, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("error_code", Text),
    Column("baseline_error_code", Text),
    # From gateway/shadow/comparison.py; null unless the outcome is `compared`.
    Column("same_text", Boolean),
    Column("first_difference", Integer),
    Column("baseline_characters", Integer),
    Column("candidate_characters", Integer),
    Column("baseline_finish", Text),
    Column("candidate_finish", Text),
    Column("baseline_json_valid", Boolean),
    Column("candidate_json_valid", Boolean),
    Column("same_tool_calls", Boolean),
    Column("baseline_refused", Boolean),
    Column("candidate_refused", Boolean),
    Column("baseline_ttft_ms", Double),
    Column("candidate_ttft_ms", Double),
    Column("baseline_tokens_per_s", Double),
    Column("candidate_tokens_per_s", Double),
    Column("baseline_cached_tokens", Integer),
    Column("candidate_cached_tokens", Integer),
    Column("baseline_completion_tokens", Integer),
    Column("candidate_completion_tokens", Integer),
    Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    # The writer's, see `request_traces`.
    Column("transaction_id", BigInteger, nullable=False, server_default=text("(pg_current_xact_id()::text)::bigint")),
    # The candidate's share when the request arrived, 0 in a shadow stage; null if it was not recorded.
    Column("stage_share", Double),
    one_of("outcome", Outcome),
    CheckConstraint("(outcome = 'compared') = (same_text IS NOT NULL)", name="compared"),
    Index(None, "recorded_at", postgresql_using="brin"),
    Index(None, "release", "model"),
    Index(None, "release", "transaction_id"),
)

reviews = Table(
    "reviews",
    metadata,
    id_column(),
    Column("model", Text, nullable=False),
    Column("release", Text, nullable=False),
    Column("unit", BigInteger, nullable=False),
    # Drawn once, and shown only after a vote.
    Column("candidate_left", Boolean, nullable=False),
    # Null once the texts are deleted, with all that identifies their owner.
    Column("project_id", UUID()),
    Column("prompt", Text),
    Column("baseline", Text),
    Column("candidate", Text),
    Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    # Like that of `shadow_pairs`.
    Column("stage_share", Double),
    CheckConstraint(
        "num_nulls(project_id, prompt, baseline, candidate) IN (0, 4)",
        name="texts",
    ),
    Index(None, "recorded_at", "id"),
    Index(None, "project_id"),
)

review_votes = Table(
    "review_votes",
    metadata,
    Column("review_id", UUID(), ForeignKey(reviews.c.id, ondelete="CASCADE"), primary_key=True),
    # The member, service account or account of the machine that voted.
    Column("reviewer", Text, primary_key=True),
    Column("choice", Text, nullable=False),
    Column("voted_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
    one_of("choice", Choice),
)

# A session's first decisive vote, which a release's judge counts, whatever the later votes.
review_coins = Table(
    "review_coins",
    metadata,
    Column("release", Text, primary_key=True),
    Column("unit", BigInteger, primary_key=True, autoincrement=False),
    # Whether the candidate's answer was the worse one.
    Column("worse", Boolean, nullable=False),
    Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Index(None, "recorded_at", postgresql_using="brin"),
)
