"""Defines bounds and statuses of stored responses and conversations, and the statement that enforces the bounds."""

from __future__ import annotations

MAX_BYTES = 1024 * 1024 * 1024
"""Limit of one organization's responses, and of its conversations."""
MAX_HISTORY_BYTES = 16 * 1024 * 1024
"""Limit of the history that a request continues."""

UNFINISHED = ("queued", "in_progress")
"""Statuses of a background response that the worker has not finished."""


def make_room(table: str, newest_by: str, most_rows: int, spared: str = "false") -> str:
    """SQL that deletes an organization's oldest rows above the bounds. newest_by: the column of their order. spared: an
    SQL condition of rows that stay. $1: the organization's id.

    SKIP LOCKED keeps two writers that make room at once from waiting for each other.
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
