"""Joins a change and its audit rows in one transaction, for the admin API and the command line."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import asyncpg

from contracts.errors import Conflict
from control.api.call import AdminCall
from storage.audit_log import Actor, record


@contextlib.asynccontextmanager
async def recorded(call: AdminCall, actor: Actor) -> AsyncIterator[None]:
    """A transaction around work with `call`. It ends with the audit rows of the work's changes.

    Raises Conflict when a name is taken.
    """
    try:
        async with call.connection.transaction():
            yield
            for change in call.changes:
                kept = change if call.principal.operator else change.without_long_texts()
                await record(call.connection, actor, kept)
    except asyncpg.UniqueViolationError as error:
        raise Conflict(_conflict(error)) from None


def _conflict(error: asyncpg.UniqueViolationError) -> str:
    """A message about the taken name. It omits PostgreSQL's detail, which contains other rows' values."""
    what = {"email": "a member with this e-mail address", "name": "one with this name"}
    field = next((name for name in what if name in (error.constraint_name or "")), "name")
    return f"There is already {what[field]}."
