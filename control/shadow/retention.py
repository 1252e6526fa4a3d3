"""Deletes pairs, reviews and votes after their retention. Called by the worker's scheduled task."""

from __future__ import annotations

from storage.worker_connection import connect

AT_ONCE = 10_000
"""Rows in one transaction."""
# Reviews with votes stay as numbers for as long as pairs do; reviews without votes are useless without their texts.
# Coins stay until their release ends: its judge knows how many it has counted, and takes only more as new.
FORGET = (
    """
DELETE FROM gateway.shadow_pairs WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM gateway.shadow_pairs WHERE recorded_at < now() - make_interval(days => %(pairs)s) LIMIT %(most)s))
""",
    """
DELETE FROM gateway.review_coins WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM gateway.review_coins
     WHERE recorded_at < now() - make_interval(days => %(pairs)s)
       AND NOT EXISTS (SELECT FROM gateway.releases WHERE id::text = review_coins.release AND ended_at IS NULL)
     LIMIT %(most)s))
""",
    """
DELETE FROM gateway.reviews WHERE id = ANY(ARRAY(
    SELECT id FROM gateway.reviews
     WHERE recorded_at < now() - make_interval(days => %(pairs)s)
        OR recorded_at < now() - make_interval(days => %(texts)s)
           AND NOT EXISTS (SELECT FROM gateway.review_votes WHERE review_id = reviews.id)
     LIMIT %(most)s))
""",
    """
UPDATE gateway.reviews SET project_id = NULL, prompt = NULL, baseline = NULL, candidate = NULL
 WHERE id = ANY(ARRAY(
    SELECT id FROM gateway.reviews
     WHERE recorded_at < now() - make_interval(days => %(texts)s) AND prompt IS NOT NULL LIMIT %(most)s))
""",
)


def forget(database_url: str, *, pair_retention_days: int, text_retention_days: int) -> int:
    """Delete rows past their retention; returns their number. Raises psycopg.Error."""
    days = {"pairs": pair_retention_days, "texts": min(text_retention_days, pair_retention_days), "most": AT_ONCE}
    forgotten = 0
    with connect(database_url, autocommit=True) as connection:
        for statement in FORGET:
            while deleted := connection.execute(statement, days).rowcount:
                forgotten += deleted
    return forgotten
