"""Provides connections to PostgreSQL for reads and writes that a client of the Responses API waits for."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import asyncpg

from contracts.errors import InvalidField, ResponsesUnavailable
from contracts.generation import Caller
from storage.engine import FAILURES, Turns, borrow

logger = logging.getLogger(__name__)

TIMEOUT_S = 5.0
"""Longest wait for one read or write."""
MAX_EACH = 2
"""Connections that one organization may use at once, half of the pool."""


class StorePool:
    """The connections of one gateway process, for which organizations take turns."""

    def __init__(self, pool: asyncpg.Pool[Any]) -> None:
        self._pool = pool
        self._turns = Turns(MAX_EACH)

    @contextlib.asynccontextmanager
    async def reached(self, organization_id: str) -> AsyncIterator[asyncpg.Connection[Any]]:
        """A connection for a read or write that a client waits for. organization_id: empty for several organizations.
        Raises ResponsesUnavailable, and InvalidField for an id that the database cannot store."""
        try:
            async with asyncio.timeout(TIMEOUT_S), self._turns.of(organization_id), borrow(self._pool) as connection:
                yield connection
        except asyncpg.CharacterNotInRepertoireError:
            # PostgreSQL accepts no such text, so a retry would not help
            raise InvalidField("An id contains a NUL character. Remove the character.", param="id") from None
        except FAILURES as failure:
            logger.warning("stored responses cannot be reached: %s", failure)
            raise ResponsesUnavailable(
                "Stored responses cannot be reached. Try again, or send the whole conversation as 'input' and leave "
                "'store', 'previous_response_id' and 'conversation' out.",
                retry_after_s=2,
            ) from None


def owner_of(caller: Caller) -> tuple[str, str]:
    """The columns of a row that only keys of the caller's project find."""
    return caller.organization_id, caller.project_id
