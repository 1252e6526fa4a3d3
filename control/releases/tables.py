"""Releases and their steps, with the evidence, the verdict and the outcome of each step."""

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
    # The candidate, the pool that it replaces, and the control arm's pool, which is empty for the baseline's pool.
    Column("candidate_pool", Text, nullable=False),
    Column("engine_model", Text),
    Column("baseline_pool", Text, nullable=False),
    Column("control_pool", Text, nullable=False),
    # Rising shares of sessions: 0 is the shadow stage, 1 all traffic.
    Column("stages", ARRAY(Double), nullable=False),
    Column("shadow_share", Double, nullable=False),
    Column("shadow_least", Integer, nullable=False),
    Column("slices", ARRAY(Text), nullable=False),
    # JSON of control/slices/startable.py: how the slices are compared.
    Column("slice_rule", Text, nullable=False, server_default=text("'{}'")),
    # JSON of margins.py and, once the release began, of the judge's policy and thresholds. Text stays as written.
    Column("margins", Text, nullable=False),
    Column("policy", Text),
    Column("thresholds", Text),
    Column("state", Text, nullable=False),
    Column("stage", Integer, nullable=False),
    Column("stage_began_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("ended_at", DateTime(timezone=True)),
    # The newest step. told: the controller's last finding without a step.
    Column("step", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("told", Text, nullable=False, server_default=text("''")),
    # The first request_traces.transaction_id that no step has consumed; null before the release begins.
    Column("watermark", BigInteger),
    # The part of the sessions that one organization may have, fixed when the release began; null without a limit.
    Column("organization_share", Double),
    # Sessions that persons granted beyond the budget of evidence.
    Column("more_units", Integer, nullable=False, server_default=text("0")),
    # The comparison of the slices (evals.comparisons); null if none was queued.
    Column("comparison_id", UUID()),
    # The version of the desired state that the last move wrote; null if there is none.
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
    # The stages before and after the step.
    Column("stage", Integer, nullable=False),
    Column("to_stage", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("reason", Text, nullable=False),
    # The consumed evidence, packed by control/releases/rollout/evidence.py (null without any), the number of its
    # requests, and the part of the sessions that they were drawn from.
    Column("evidence", LargeBinary),
    Column("requests", Integer, nullable=False, server_default=text("0")),
    Column("sampled", Double, nullable=False, server_default=text("1")),
    # Sessions that a person added to the budget of evidence.
    Column("more_units", Integer, nullable=False, server_default=text("0")),
    # The judge's verdict as exact JSON.
    Column("verdict", Text),
    # The version of the desired state that the step wrote; null if it wrote none.
    Column("desired_version", BigInteger),
    one_of("event", Event),
    one_of("state", State),
)
