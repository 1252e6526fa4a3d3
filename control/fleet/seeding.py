"""Puts the settings' models and pools in force at a start, or as soon as the database can be reached."""

from __future__ import annotations

import asyncio
import logging

from contracts.background_task import BackgroundTask
from contracts.backoff import Backoff
from contracts.desired_state import Model, Pool
from contracts.errors import ConfigError
from gateway.desired.store import DatabaseAway, DesiredStateStore

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0

_log = logging.getLogger(__name__)


class Seeding:
    """One per gateway process."""

    def __init__(self, store: DesiredStateStore, models: tuple[Model, ...], pools: tuple[Pool, ...]) -> None:
        """models: empty: the database's state stays in force."""
        self._store = store
        self._models = models
        self._pools = pools
        self._task = BackgroundTask("seeding", self._retry)
        self.done = not models
        """Whether the settings have been compared with the state in force, and written if they are new."""

    async def start(self) -> None:
        """Try once, and go on in the background if the database cannot be reached.

        Raises ConfigError if the database refuses the settings and no fleet is in force.
        """
        if self.done:
            return
        try:
            await self._seed()
        except DatabaseAway as error:
            _log.warning("waiting for the database, /readyz reports it: %s", error.message)
            self._task.start()
        except ConfigError as error:
            if self._store.current.version == 0:
                raise
            _log.warning("the settings' models are not in force: %s", error.message)
            self.done = True

    async def stop(self) -> None:
        """Stop trying. Idempotent."""
        await self._task.stop()

    async def _seed(self) -> None:
        await self._store.seed(self._models, self._pools)
        self.done = True

    async def _retry(self) -> None:
        said, backoff = "", Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        while not self.done:
            await asyncio.sleep(backoff.next_s())
            try:
                await self._seed()
            except DatabaseAway as error:
                _log.debug("the database is still away: %s", error.message)
            except ConfigError as error:  # an operator may mend what the database refuses
                if error.message != said:
                    _log.error("the settings' models are not in force, trying again: %s", error.message)
                said = error.message
        _log.info("the database can be reached, the settings' models are in force")
