"""The one statement that stores prompts: only of organizations that want it (`store_prompts`), or of projects that let
reviewers read them (`allow_reviews`)."""

from __future__ import annotations

WANTED = """
    WITH wanted AS (
        SELECT id, {consent}_since AS since
          FROM gateway.{owners} WHERE id = ANY (${number}::uuid[]) AND {consent} ORDER BY id FOR SHARE)
"""
CONSENTS = {"organizations": "store_prompts", "projects": "allow_reviews"}
"""Columns, by table."""


def insert_where_stored(table: str, owners: str = "organizations", **columns: str) -> str:
    """An INSERT of many rows in asyncpg's form: an array for each of the columns, in their order. owners: the entry of
    CONSENTS whose consent is required. columns: names with their types.

    The owner's id and `asked_at` are among them; `asked_at` is not stored but compared. Rows are left out if their
    owner does not want them stored, or turned that on only after the request. The owner's row is locked, so that
    turning it off meanwhile deletes these rows too. Existing rows stay unchanged.
    """
    names = list(columns)
    stored = [name for name in names if name != "asked_at"]
    given = ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(columns.values(), 1))
    owner = f"{owners.removesuffix('s')}_id"
    return f"""{WANTED.format(number=names.index(owner) + 1, owners=owners, consent=CONSENTS[owners])}
    INSERT INTO {table} ({", ".join(stored)})
    SELECT {", ".join(f"asked.{name}" for name in stored)}
      FROM unnest({given}) AS asked ({", ".join(names)})
      JOIN wanted ON wanted.id = asked.{owner} AND asked.asked_at >= wanted.since
        ON CONFLICT DO NOTHING
    """  # noqa: S608  names of our own tables and columns
