"""Releases and their steps: what each consumed, what was said of it, and where it led."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, UUID

from control.releases.machine import Event, State
from storage.tables.core import created_at, id_column, metadata, one_of

releases = Table(
    "releases",
    metadata,
    id_column(),
    created_at(),
    Column("model", Text, nullable=False),
    # What the candidate is, what it is to replace, and where its control arm runs; empty: in the baseline's pool.
    Column("candidate_pool", Text, nullable=False),
    Column("engine_model", Text),
    Column("baseline_pool", Text, nullable=False),
    Column("control_pool", Text, nullable=False),
    # Shares of sessions, rising: 0 is the shadow stage, 1 the end.
    Column("stages", ARRAY(Double), nullable=False),
    Column("shadow_share", Double, nullable=False),
    Column("shadow_least", Integer, nullable=False),
    Column("slices", ARRAY(Text), nullable=False),
    # JSON of control/slices/startable.py: by what they are compared.
    Column("slice_rule", Text, nullable=False, server_default=text("'{}'")),
    # JSON of margins.py, and of the judge's policy and thresholds once it began: text, which stays as it was written.
    Column("margins", Text, nullable=False),
    Column("policy", Text),
    Column("thresholds", Text),
    Column("state", Text, nullable=False),
    Column("stage", Integer, nullable=False),
    Column("stage_began_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("ended_at", DateTime(timezone=True)),
    # Of its newest step. told: the controller's last finding without a step.
    Column("step", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("told", Text, nullable=False, server_default=text("''")),
    # The first of request_traces.transaction_id that no step has consumed; null: none was looked for yet.
    Column("watermark", BigInteger),
    # The part of its sessions that one organization may have, fixed when it began; null: any.
    Column("organization_share", Double),
    # Sessions that persons granted beyond its budget of evidence.
    Column("more_units", Integer, nullable=False, server_default=text("0")),
    # The comparison of its slices (evals.comparisons); null: none was queued.
    Column("comparison_id", UUID()),
    # Of the desired state that its last move wrote; null: none.
    Column("desired_version", BigInteger),
    one_of("state", State),
    CheckConstraint("stage >= 0 AND stage < cardinality(stages)", name="stage"),
    CheckConstraint("(ended_at IS NOT NULL) = (state IN ('promoted', 'rolled_back'))", name="ended_at"),
    CheckConstraint("state = 'waiting' OR state = 'rolled_back' OR policy IS NOT NULL", name="policy"),
    Index("releases_model_key", "model", unique=True, postgresql_where=text("ended_at IS NULL")),
    Index(None, "created_at", "id"),
)

release_steps = Table(
    "release_steps",
    metadata,
    Column("release_id", UUID(), ForeignKey(releases.c.id, ondelete="CASCADE"), primary_key=True),
    Column("step", Integer, primary_key=True, autoincrement=False),
    Column("at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("event", Text, nullable=False),
    # Before it, and after it.
    Column("stage", Integer, nullable=False),
    Column("to_stage", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("reason", Text, nullable=False),
    # What it consumed, packed by control/releases/rollout/evidence.py: how many requests, and the part of the sessions
    # they were drawn from; null: nothing.
    Column("evidence", LargeBinary),
    Column("requests", Integer, nullable=False, server_default=text("0")),
    Column("sampled", Double, nullable=False, server_default=text("1")),
    # Sessions by which a person made its budget of evidence larger.
    Column("more_units", Integer, nullable=False, server_default=text("0")),
    # The judge's, as JSON and to the bit.
    Column("verdict", Text),
    # The version of the desired state that it wrote; null: none.
    Column("desired_version", BigInteger),
    one_of("event", Event),
    one_of("state", State),
)
