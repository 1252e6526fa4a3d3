"""The statement that stores prompts, only for organizations with `store_prompts`, or for projects that let reviewers
read them (`allow_reviews`)."""

from __future__ import annotations

WANTED = """
    WITH wanted AS (
        SELECT id, {consent}_since AS since
          FROM gateway.{owners} WHERE id = ANY (${number}::uuid[]) AND {consent} ORDER BY id FOR SHARE)
"""
CONSENTS = {"organizations": "store_prompts", "projects": "allow_reviews"}
"""Columns of the consent, by table."""


def insert_where_stored(table: str, owners: str = "organizations", **columns: str) -> str:
    """An INSERT of many rows in asyncpg's form: an array for each of the columns, in their order. owners: the entry of
    CONSENTS whose consent is required. columns: names with their types.

    The columns include the owner's id and `asked_at`, which is not stored but compared. Rows are left out without the
    owner's consent, or if it was given only after the request. The owner's row is locked, so that a concurrent
    withdrawal deletes these rows too. Existing rows stay unchanged.
    """
    names = list(columns)
    stored = [name for name in names if name != "asked_at"]
    arrays = ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(columns.values(), 1))
    owner = f"{owners.removesuffix('s')}_id"
    return f"""{WANTED.format(number=names.index(owner) + 1, owners=owners, consent=CONSENTS[owners])}
    INSERT INTO {table} ({", ".join(stored)})
    SELECT {", ".join(f"asked.{name}" for name in stored)}
      FROM unnest({arrays}) AS asked ({", ".join(names)})
      JOIN wanted ON wanted.id = asked.{owner} AND asked.asked_at >= wanted.since
        ON CONFLICT DO NOTHING
    """  # noqa: S608  only trusted names of tables and columns
