"""The one statement that stores prompts: of organizations that want it (`store_prompts`), and of nobody else."""

from __future__ import annotations

WANTED = """
    WITH wanted AS (
        SELECT id, store_prompts_since AS since
          FROM gateway.organizations WHERE id = ANY (${number}::uuid[]) AND store_prompts ORDER BY id FOR SHARE)
"""


def insert_where_stored(table: str, **columns: str) -> str:
    """An INSERT of many rows, as asyncpg wants it: an array for each of the columns, in their order.

    columns: names with their types. `organization_id` and `asked_at` are among them; `asked_at` is not stored but
    compared. Rows are left out whose organization does not want them stored, or turned that on only after they were
    asked; its row is held, so that whoever turns it off meanwhile deletes what this has stored. Rows that are there
    already stay as they are.
    """
    names = list(columns)
    stored = [name for name in names if name != "asked_at"]
    given = ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(columns.values(), 1))
    return f"""{WANTED.format(number=names.index("organization_id") + 1)}
    INSERT INTO {table} ({", ".join(stored)})
    SELECT {", ".join(f"asked.{name}" for name in stored)}
      FROM unnest({given}) AS asked ({", ".join(names)})
      JOIN wanted ON wanted.id = asked.organization_id AND asked.asked_at >= wanted.since
        ON CONFLICT DO NOTHING
    """  # noqa: S608  names of our own tables and columns
