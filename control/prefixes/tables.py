"""Relations between prompts: a row for each request with digests and lengths, their sums by hour, and the drops.

Without the deployment's key, no guessed text can be checked against the hashes. Texts are only in a table of their own,
for organizations that want them stored.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, DateTime, Double, Index, Integer, SmallInteger, Table, Text, func, text
from sqlalchemy.dialects.postgresql import ARRAY, UUID

from storage.tables.core import id_column, metadata

# Written best effort, like the traces, for requests that reached an engine.
prefix_samples = Table(
    "prefix_samples",
    metadata,
    Column("request_id", Text(collation="C"), primary_key=True),
    Column("organization_id", UUID(), nullable=False),
    Column("project_id", UUID(), nullable=False),
    Column("model", Text, nullable=False),
    Column("tier", Text, nullable=False),
    Column("endpoint", Text, nullable=False),
    # A keyed digest (gateway/prefixes/template.py), or `others`.
    Column("template", Text, nullable=False),
    # The first request of the conversation, and the request's turn in it, from 1.
    Column("session_id", Text, nullable=False),
    Column("turn", Integer, nullable=False),
    Column("prompt_tokens", Integer, nullable=False),
    Column("reusable_tokens", Integer, nullable=False),
    # The beginning of the first block that was new; null if none was.
    Column("differing_token", Integer),
    Column("part", Text),
    Column("part_number", Integer),
    Column("cause", Text, nullable=False),
    # Keyed digests of the prompt's prefixes, every 512 tokens.
    Column("blocks", ARRAY(BigInteger), nullable=False),
    Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Index(None, "recorded_at", postgresql_using="brin"),
    # Ids are in order of time.
    Index(None, "organization_id", "request_id"),
)

# Like the indexes of request_traces.
for _share in ("1000", "0400", "0100", "0040"):
    Index(
        f"prefix_samples_sample_{_share}_idx",
        prefix_samples.c.request_id,
        prefix_samples.c.organization_id,
        postgresql_where=text(f"right(request_id, 4) < '{_share}'"),
    )

# Only for organizations whose `store_prompts` is on.
prefix_texts = Table(
    "prefix_texts",
    metadata,
    Column("request_id", Text(collation="C"), primary_key=True),
    Column("project_id", UUID(), nullable=False),
    Column("organization_id", UUID(), nullable=False),
    Column("template", Text, nullable=False),
    Column("cause", Text, nullable=False),
    Column("part", Text),
    Column("part_number", Integer),
    # Both begin alike; null if only the digest of the earlier prompt was kept.
    Column("earlier", Text),
    Column("later", Text, nullable=False),
    Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Index(None, "recorded_at", postgresql_using="brin"),
    Index(None, "organization_id", "request_id"),
)

# Sums of the samples, recomputed from them for as long as they are kept.
prefix_shares = Table(
    "prefix_shares",
    metadata,
    Column("organization_id", UUID(), primary_key=True),
    Column("hour", DateTime(timezone=True), primary_key=True),
    Column("model", Text, primary_key=True),
    Column("endpoint", Text, primary_key=True),
    Column("template", Text, primary_key=True),
    Column("cause", Text, primary_key=True),
    # Empty if the cause has none.
    Column("part", Text, primary_key=True),
    Column("requests", BigInteger, nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("reusable_tokens", BigInteger, nullable=False),
    # From engines' reports and the ledger.
    Column("cached_tokens", BigInteger, nullable=False),
    # The earliest position at which one of these requests first differed; null if none did.
    Column("differing_token", Integer),
)

prefix_drops = Table(
    "prefix_drops",
    metadata,
    id_column(),
    Column("organization_id", UUID(), nullable=False),
    Column("began_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("ended_at", DateTime(timezone=True)),
    # The reusable part of all prompt tokens, before and at the drop.
    Column("usual_share", Double, nullable=False),
    Column("share", Double, nullable=False),
    # Where and why most was lost; null if no template lost more than before.
    Column("template", Text),
    Column("model", Text),
    Column("cause", Text),
    Column("part", Text),
    Column("part_number", SmallInteger),
    Column("differing_token", Integer),
    Index("prefix_drops_open_key", "organization_id", unique=True, postgresql_where=text("ended_at IS NULL")),
    Index(None, "organization_id", "began_at"),
)
