"""Bounds and statuses of stored responses and conversations, and the statement that keeps an organization within
them."""

from __future__ import annotations

MAX_BYTES = 1024 * 1024 * 1024
"""Bytes of one organization's responses, and of its conversations."""
MAX_HISTORY_BYTES = 16 * 1024 * 1024
"""Bytes before a request that continues them."""

UNFINISHED = ("queued", "in_progress")
"""Statuses of a response in the background that the worker has still to finish."""


def make_room(table: str, newest_by: str, most_rows: int, spared: str = "false") -> str:
    """SQL that deletes an organization's oldest rows above the bounds. newest_by: the column of their order. spared:
    SQL; true of rows that stay. $1: the organization's id.

    SKIP LOCKED: two writers that make room at once must not wait for each other.
    """
    return f"""
DELETE FROM {table} WHERE id = ANY(ARRAY(
    SELECT id FROM {table} WHERE id IN (
        SELECT id FROM (
            SELECT id, row_number() OVER newest AS number, sum(size_bytes) OVER newest AS bytes
              FROM {table} WHERE organization_id = $1
            WINDOW newest AS (ORDER BY {newest_by} DESC, id DESC)) AS ranked
         WHERE number > {most_rows} OR bytes > {MAX_BYTES}) AND ({spared}) IS NOT TRUE
       FOR UPDATE SKIP LOCKED))
"""  # noqa: S608
