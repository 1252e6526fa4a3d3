"""Outcomes of completions in editors. A row of `request_traces` describes the completion itself.

Neither has texts of prompts or completions: only ids, types, times and numbers of characters. Texts are in a table of
their own, for organizations that want them stored.
"""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, DateTime, Index, Integer, SmallInteger, Table, Text, func
from sqlalchemy.dialects.postgresql import UUID

from gateway.autocomplete.event_type import EventType
from storage.tables.core import metadata, one_of

# The project is in the key: a report about another project's completion matches nothing, and cannot displace that
# project's own report either. No foreign key: a completion's trace may be written later, or never.
completion_events = Table(
    "completion_events",
    metadata,
    Column("request_id", Text(collation="C"), primary_key=True),
    Column("project_id", UUID(), primary_key=True),
    Column("choice_index", SmallInteger, primary_key=True, autoincrement=False),
    # The editor's id of this showing of the completion; empty if it has none.
    Column("view_id", Text, primary_key=True),
    Column("type", Text, primary_key=True),
    Column("organization_id", UUID(), nullable=False),
    # Accepted characters, as the editor counted them.
    Column("characters", Integer),
    # Time since the completion was shown.
    Column("elapsed_ms", Integer),
    Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    one_of("type", EventType),
    CheckConstraint("characters >= 0", name="characters"),
    CheckConstraint("elapsed_ms >= 0", name="elapsed_ms"),
    Index(None, "recorded_at", postgresql_using="brin"),
    # Ids are in order of time.
    Index(None, "organization_id", "request_id"),
)

# Only for organizations whose `store_prompts` is on; no foreign key, as above.
completion_texts = Table(
    "completion_texts",
    metadata,
    Column("request_id", Text(collation="C"), primary_key=True),
    Column("project_id", UUID(), nullable=False),
    Column("organization_id", UUID(), nullable=False),
    # The text next to the cursor, within the limits of gateway/autocomplete/text_store.py.
    Column("prefix", Text, nullable=False),
    Column("suffix", Text, nullable=False),
    # Null if the response was passed on undecoded.
    Column("completion", Text),
    Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Index(None, "recorded_at", postgresql_using="brin"),
    Index(None, "organization_id", "request_id"),
)
