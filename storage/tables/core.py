"""The gateway's tables, all in the PostgreSQL schema `gateway`.

Queries use these definitions. `migrations/` creates the tables in hand-written steps, and a test keeps both equal.
Times are `timestamptz`, and identifiers are UUIDs.
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
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, UUID
from sqlalchemy.schema import SchemaItem

SCHEMA = "gateway"

metadata = MetaData(
    schema=SCHEMA,
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
    },
)


def one_of(column: str, kind: type[StrEnum]) -> CheckConstraint:
    """A constraint: the column has one of the enumeration's values."""
    values = ", ".join(f"'{member.value}'" for member in kind)
    return CheckConstraint(f"{column} IN ({values})", name=column)


def created_at() -> Column[object]:
    """Time of the row's creation."""
    return Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now())


def id_column() -> Column[object]:
    """A random UUID as primary key."""
    return Column("id", UUID(), primary_key=True, server_default=text("gen_random_uuid()"))


organizations = Table(
    "organizations",
    metadata,
    id_column(),
    # Not unique: a refused name would reveal other tenants, and a tenant could block another's name.
    Column("name", Text, nullable=False, index=True),
    created_at(),
    # Whether its members run the deployment: their roles apply in every organization.
    Column("operator", Boolean, nullable=False, server_default=text("false")),
    Column("disabled_at", DateTime(timezone=True)),
    # Whether its prompts may be stored (gateway/autocomplete/text_store.py). When this ends, a trigger deletes them.
    Column("store_prompts", Boolean, nullable=False, server_default=text("false")),
    # Time when it was last turned on, set by the database; -infinity for the organization's creation.
    Column("store_prompts_since", DateTime(timezone=True), nullable=False, server_default=text("'-infinity'")),
    # Whether it is the deployment's own, whose requests are no customer's usage. At most one is.
    Column("internal", Boolean, nullable=False, server_default=text("false")),
    Index("organizations_operator_key", "operator", unique=True, postgresql_where=text("operator")),
    Index("organizations_internal_key", "internal", unique=True, postgresql_where=text("internal")),
    Index(None, "created_at", "id"),
)

projects = Table(
    "projects",
    metadata,
    id_column(),
    Column("organization_id", UUID(), ForeignKey(organizations.c.id), nullable=False),
    Column("name", Text, nullable=False),
    created_at(),
    # Names of models and tiers that its keys may use; null for all.
    Column("models", ARRAY(Text)),
    Column("tiers", ARRAY(Text)),
    Column("disabled_at", DateTime(timezone=True)),
    # Whether reviewers of the operating organization may read the prompts of its keys, and since when.
    Column("allow_reviews", Boolean, nullable=False, server_default=text("false")),
    Column("allow_reviews_since", DateTime(timezone=True), nullable=False, server_default=text("'-infinity'")),
    UniqueConstraint("organization_id", "name"),
    Index(None, "organization_id", "created_at", "id"),
)


def key_columns() -> list[SchemaItem]:
    """Columns of inference keys and admin keys: two secrets, as hashes, and their validity."""
    return [
        id_column(),
        Column("name", Text, nullable=False),
        Column("hash", LargeBinary, nullable=False, unique=True),
        Column("display", Text, nullable=False),
        created_at(),
        Column("expires_at", DateTime(timezone=True)),
        Column("revoked_at", DateTime(timezone=True)),
        Column("last_used_at", DateTime(timezone=True)),
        # After a rotation, the previous secret, which stays valid until then.
        Column("previous_hash", LargeBinary, unique=True),
        Column("previous_expires_at", DateTime(timezone=True)),
        CheckConstraint("octet_length(hash) = 32", name="hash"),
        CheckConstraint("octet_length(previous_hash) = 32", name="previous_hash"),
        CheckConstraint("(previous_hash IS NULL) = (previous_expires_at IS NULL)", name="previous"),
    ]


api_keys = Table(
    "api_keys",
    metadata,
    *key_columns(),
    Column("project_id", UUID(), ForeignKey(projects.c.id), nullable=False, index=True),
    # What the key may be used for (gateway/auth/scopes.py); null for everything.
    Column("scopes", ARRAY(Text)),
    Index(None, "project_id", "created_at", "id"),
)

# LoRA adapters, which are read with the keys (gateway/auth/directory.py). A trigger announces changes on their channel.
adapters = Table(
    "adapters",
    metadata,
    id_column(),
    Column("organization_id", UUID(), ForeignKey(organizations.c.id), nullable=False),
    # Null for all projects of the organization.
    Column("project_id", UUID(), ForeignKey(projects.c.id)),
    Column("model", Text, nullable=False),
    Column("name", Text, nullable=False),
    # A folder, as the model's engines reach it.
    Column("path", Text, nullable=False),
    created_at(),
    UniqueConstraint("organization_id", "project_id", "model", "name", postgresql_nulls_not_distinct=True),
    Index(None, "organization_id", "created_at", "id"),
)

desired_states = Table(
    "desired_states",
    metadata,
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("document", JSONB, nullable=False),
    created_at(),
    # Digest of the settings' fleet that it descends from. These three are null in rows of releases before 0021.
    Column("settings_digest", Text),
    Column("action", Text),
    Column("actor", Text),
    CheckConstraint("version > 0", name="version"),
)

# The version of the desired state at each gateway, which reports it at its start and repeatedly.
fleet_gateways = Table(
    "fleet_gateways",
    metadata,
    Column("instance", Text, primary_key=True),
    # Digest of the settings' fleet at its last start.
    Column("settings_digest", Text),
    # The version that it serves by; 0 before the first.
    Column("version", BigInteger, nullable=False, server_default=text("0")),
    Column("refused_version", BigInteger),
    Column("refusal", Text),
    Column("seen_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    CheckConstraint("(refused_version IS NULL) = (refusal IS NULL)", name="refusal"),
)

# Traces of requests, written best effort, separately from the ledger, after the client has its last byte.
request_traces = Table(
    "request_traces",
    metadata,
    Column("request_id", Text, primary_key=True),
    Column("organization_id", UUID(), nullable=False),
    Column("client_request_id", Text),
    Column("status", SmallInteger, nullable=False),
    Column("error_code", Text),
    Column("total_ms", Double, nullable=False),
    Column("phases_ms", JSONB, nullable=False),
    Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("project_id", UUID()),
    Column("key_id", UUID()),
    Column("endpoint", Text),
    Column("model", Text),
    Column("tier", Text),
    # For a refusal: the client's error, the rule that refused, and the counters' state.
    Column("reason", Text),
    Column("rule", JSONB),
    Column("counters", JSONB),
    # The client's family, the language that it named, and the length of its first choice, but never the text.
    Column("client", Text),
    Column("language", Text),
    Column("characters", Integer),
    # The side of its model's split; null without one. release: the split's release, for the sides that it compares.
    # unit: its session. transaction_id: the writer's. Below a snapshot's xmin, all rows are visible, and none is added.
    Column("side", Text),
    Column("release", Text),
    Column("unit", BigInteger),
    Column("transaction_id", BigInteger, server_default=text("(pg_current_xact_id()::text)::bigint")),
    # The request whose generation was its response; null for its own.
    Column("served_from", Text),
    # Where its last attempt ran; null if none did. canary: whether the pool is the model's canary.
    Column("pool", Text),
    Column("replica_id", Text),
    Column("canary", Boolean),
    Column("stream", Boolean),
    Column("attempts", SmallInteger),
    # As in the ledger; the gateway counts the prompt if no engine reported it. Null if no engine had the request.
    Column("prompt_tokens", Integer),
    Column("cached_tokens", Integer),
    Column("completion_tokens", Integer),
    # Null if no text was generated. For text that is not streamed or was held back: when the engine's came.
    Column("ttft_ms", Double),
    # Mean time of a token after the first one; null for fewer than two, or if the engine did not end it itself. This
    # and the two below are also null with several choices, or if another request's generation was the response.
    Column("tpot_ms", Double),
    # Longest time between two arrivals of the engine's tokens; null for fewer than two arrivals.
    Column("itl_max_ms", Double),
    Column("gaps_over_100ms", Integer),
    # Time for which the client's connection accepted no more data.
    Column("client_stall_ms", Double),
    # Parts of the phase `engine`; null if the engine does not report them.
    Column("engine_queue_ms", Double),
    Column("engine_prefill_ms", Double),
    Column("engine_grammar_ms", Double),
    # Number of retractions by the engine; null if it does not report them.
    Column("retractions", SmallInteger),
    # OpenTelemetry's, 32 hexadecimal digits; null without spans.
    Column("trace_id", Text),
    # For a request refused for lack of room: whether its organization used more than its share. Otherwise null.
    Column("over_share", Boolean),
    # One of `contracts.service_class`; null if the request was refused before its class was known.
    Column("service_class", Text),
    # As the client names them in headers, or a digest of a name in its body (gateway/wire/session.py); null if it names
    # none. agent: within the session, null for its first one. parent: the agent or session that began it.
    Column("session", Text),
    Column("session_agent", Text),
    Column("session_parent", Text),
    Index(None, "session", "organization_id", "request_id", postgresql_where=text("session IS NOT NULL")),
    Index(None, "recorded_at", postgresql_using="brin"),
    # Ids are in order of time.
    Index(None, "organization_id", "request_id"),
    Index(None, "release", "transaction_id", postgresql_where=text("release IS NOT NULL")),
)
# Samples are drawn by the random end of ids (control/diagnosis/window.py).
for _share in ("1000", "0400", "0100", "0040"):
    Index(
        f"request_traces_sample_{_share}_idx",
        request_traces.c.request_id,
        request_traces.c.organization_id,
        postgresql_where=text(f"right(request_id, 4) < '{_share}'"),
    )
