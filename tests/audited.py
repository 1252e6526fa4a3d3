"""Whether everything that changed is in the audit log: by comparing the tables before and after, not by trusting code.

Every table of the schema is in one of two lists, so that a new one has to be thought about.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import msgspec

from migrations.metadata import metadata

ADMINISTERED = frozenset({
    "organizations", "projects", "api_keys", "principals", "admin_keys", "limits", "prices", "webhooks",
    "desired_states", "usage_retired_days", "slo_objectives", "changes", "releases", "adapters", "priorities",
    "console_accounts",
})  # fmt: skip
"""Holds what somebody decided, or what a decision did: every change is in the log."""
OBSERVED = frozenset({
    "usage_events", "usage_hourly", "usage_daily", "usage_weekly", "usage_week_closings", "project_usage_daily",
    "organization_usage_hourly", "organization_usage_daily", "usage_roll_up_runs", "usage_verifications",
    "request_hours", "request_error_hours", "refused_key_hours", "request_target_hours",
    "invoice_days", "invoice_months", "invoice_closings",
    "engine_counts", "reconciliations", "request_traces", "completion_events", "idempotency_keys", "webhook_events",
    "webhook_deliveries", "webhook_attempts", "limit_gateways", "budget_crossings", "audit_log", "slo_minutes",
    "slo_roll_up_runs", "completion_hours", "detailed_completion_days", "project_completion_weeks",
    "completion_days", "project_completion_days", "completion_roll_up_runs", "completion_due_hours",
    "prefix_samples", "prefix_shares", "prefix_drops", "prefix_texts",
    "responses", "background_responses", "response_events", "conversations", "conversation_items",
    "completion_texts", "shadow_pairs", "reviews", "review_votes", "review_coins", "fleet_gateways",
    "model_versions", "slice_versions", "runs", "run_slices", "items", "comparisons", "nights", "night_plan",
    "release_steps", "console_sessions", "console_links", "console_attempts",
    "files", "batches", "batch_results",
    "slo_hours", "serving_minutes", "serving_hours", "latency_minutes", "latency_hours",
})  # fmt: skip
"""Holds what traffic and upkeep leave behind, and the log itself."""
NAMES = ("id", "version", "subject_id", "day")
"""Columns by which the log names a row."""

State = dict[str, frozenset[str]]


def test_every_table_is_in_one_list() -> None:
    """Collected by the tests that import it."""
    tables = {table.name for table in metadata.sorted_tables}
    assert tables == ADMINISTERED | OBSERVED
    assert not ADMINISTERED & OBSERVED


async def state_of(connection: asyncpg.Connection[Any]) -> State:
    """Every administered row as JSON, by table. When a key was last used is no change."""
    state: State = {}
    for table in ADMINISTERED:
        rows = await connection.fetch(f"SELECT (to_jsonb(t) - 'last_used_at')::text AS row FROM gateway.{table} t")
        state[table] = frozenset(row["row"] for row in rows)
    return state


def changed_names(before: State, after: State) -> Iterator[tuple[str, frozenset[str]]]:
    """Each row that is not as it was: its table, and the names under which the log may speak of it."""
    for table in ADMINISTERED:
        gone, new = before[table] - after[table], after[table] - before[table]
        for text in gone | new:
            row = msgspec.json.decode(text)
            names = {str(row[column]) for column in NAMES if column in row}
            if text in gone and table in ("admin_keys", "console_accounts"):
                names.add(row["principal_id"])  # goes with its owner
            yield table, frozenset(names)


@contextlib.asynccontextmanager
async def all_audited(connection: asyncpg.Connection[Any]) -> AsyncIterator[list[asyncpg.Record]]:
    """Around a change: afterwards every changed row is named by a new row of the log. Gives those rows, at the end."""
    rows: list[asyncpg.Record] = []
    last = await connection.fetchval("SELECT coalesce(max(id), 0) FROM gateway.audit_log")
    before = await state_of(connection)
    yield rows
    after = await state_of(connection)
    rows += await connection.fetch(
        "SELECT *, before::text AS before_text, after::text AS after_text FROM gateway.audit_log WHERE id > $1"
        " ORDER BY id",
        last,
    )
    named = {str(row["subject_id"]) for row in rows}
    for row in rows:
        for text in (row["before_text"], row["after_text"]):
            if text is not None:
                named |= set(_values(msgspec.json.decode(text)))
    missing = [(table, names) for table, names in changed_names(before, after) if not names & named]
    assert not missing, f"changed without an audit row: {missing}; there are {[row['action'] for row in rows]}"


def _values(value: object) -> Iterator[str]:
    match value:
        case dict():
            for each in value.values():
                yield from _values(each)
        case list():
            for each in value:
                yield from _values(each)
        case None:
            return
        case _:
            yield str(value)
