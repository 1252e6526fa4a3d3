"""Pairs of answers, what people are asked to review of them, and their votes.

Pairs are numbers. Texts are in reviews only, of organizations that want prompts stored, and gone when they no longer
do; what was voted stays, as numbers.
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
    """What a reviewer says of two answers."""

    LEFT = "left"
    """It is better."""
    RIGHT = "right"
    """It is better."""
    BOTH = "both"
    """Both are good, and alike good."""
    NEITHER = "neither"
    """Both are bad."""
    SKIP = "skip"
    """The reviewer does not say."""


# Written best effort, like the traces. No organization: a unit is a keyed hash of one and its session.
shadow_pairs = Table(
    "shadow_pairs",
    metadata,
    # The customer's request.
    Column("id", Text(collation="C"), primary_key=True),
    Column("model", Text, nullable=False),
    # Empty: no release made the split.
    Column("release", Text, nullable=False),
    Column("baseline_pool", Text, nullable=False),
    Column("candidate_pool", Text, nullable=False),
    Column("unit", BigInteger, nullable=False),
    Column("prompt_tokens", Integer, nullable=False),
    Column("greedy", Boolean, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("error_code", Text),
    Column("baseline_error_code", Text),
    # By gateway/shadow/comparison.py; null where the outcome is another than `compared`.
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
    # Of the writer, see `request_traces`.
    Column("transaction_id", BigInteger, nullable=False, server_default=text("(pg_current_xact_id()::text)::bigint")),
    # Of the candidate when the request came, 0 in a shadow stage. Null: it was not noted.
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
    # Null: the texts are deleted, with all that identifies their owner.
    Column("project_id", UUID()),
    Column("prompt", Text),
    Column("baseline", Text),
    Column("candidate", Text),
    Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    # As of `shadow_pairs`.
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
    # The member or service account that voted, or whose command it was.
    Column("reviewer", Text, primary_key=True),
    Column("choice", Text, nullable=False),
    Column("voted_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
    one_of("choice", Choice),
)

# What the judge of a release counts: a session's first decisive vote, whatever is voted later.
review_coins = Table(
    "review_coins",
    metadata,
    Column("release", Text, primary_key=True),
    Column("unit", BigInteger, primary_key=True, autoincrement=False),
    # The candidate's answer was.
    Column("worse", Boolean, nullable=False),
    Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Index(None, "recorded_at", postgresql_using="brin"),
)
