"""What became of completions in editors. What a completion was stands in its row of `request_traces`.

No text of a prompt or a completion is in either: ids, types, moments and numbers of characters. Texts are in a table of
their own, of organizations that want them stored.
"""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, DateTime, Index, Integer, SmallInteger, Table, Text, func
from sqlalchemy.dialects.postgresql import UUID

from gateway.autocomplete.event_type import EventType
from storage.tables.core import metadata, one_of

# The project stands in the key: whoever names another project's completion reports about nothing, and cannot take the
# place of that project's own report either. No foreign key: a completion's trace may be written later, or never.
completion_events = Table(
    "completion_events",
    metadata,
    Column("request_id", Text(collation="C"), primary_key=True),
    Column("project_id", UUID(), primary_key=True),
    Column("choice_index", SmallInteger, primary_key=True, autoincrement=False),
    # What the editor calls this showing of the completion; empty when it does not tell its showings apart.
    Column("view_id", Text, primary_key=True),
    Column("type", Text, primary_key=True),
    Column("organization_id", UUID(), nullable=False),
    # Taken, as the editor counted them.
    Column("characters", Integer),
    # Since the completion was shown.
    Column("elapsed_ms", Integer),
    Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    one_of("type", EventType),
    CheckConstraint("characters >= 0", name="characters"),
    CheckConstraint("elapsed_ms >= 0", name="elapsed_ms"),
    Index(None, "recorded_at", postgresql_using="brin"),
    # Ids are in order of time.
    Index(None, "organization_id", "request_id"),
)

# Only of organizations whose `store_prompts` is on; no foreign key, as above.
completion_texts = Table(
    "completion_texts",
    metadata,
    Column("request_id", Text(collation="C"), primary_key=True),
    Column("project_id", UUID(), nullable=False),
    Column("organization_id", UUID(), nullable=False),
    # Next to the cursor, and never more than gateway/autocomplete/text_store.py says.
    Column("prefix", Text, nullable=False),
    Column("suffix", Text, nullable=False),
    # Null where the answer was passed on unread.
    Column("completion", Text),
    Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Index(None, "recorded_at", postgresql_using="brin"),
    Index(None, "organization_id", "request_id"),
)
