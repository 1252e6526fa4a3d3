"""Puts the settings' models and pools in force at a start, or as soon as the database can be reached."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import asyncpg

from contracts.background_task import BackgroundTask
from contracts.backoff import Backoff
from contracts.desired_state import DesiredState, Model, Pool
from contracts.errors import ConfigError
from control.fleet.ownership import Settled, settle, warning_of
from gateway.desired.store import DatabaseAway, DesiredStateStore
from storage.audit_log import Actor, record

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0

ACTOR = Actor.system("slipstream gateway")
"""The author in the audit log for changes by a gateway's settings."""

_log = logging.getLogger(__name__)


async def seed(store: DesiredStateStore, instance: str, models: tuple[Model, ...], pools: tuple[Pool, ...]) -> int:
    """Make the settings' fleet the newest version if `ownership` decides so, and return the version in force. instance:
    the gateway that has the settings.

    Gateways that start together write one row, not several. Raises ConfigError if the state contradicts itself or this
    release cannot read the newest row, and DatabaseAway while the database is unreachable.
    """
    settings = DesiredState(version=0, models=models, pools=pools)
    settings.check()

    async def work(connection: asyncpg.Connection[Any]) -> Settled:
        settled = await settle(connection, settings, instance, ACTOR)
        if settled.change is not None:
            await record(connection, ACTOR, settled.change)
        return settled

    settled = await store.in_transaction(work)
    if (warning := warning_of(settled)) is not None:
        _log.warning("%s", warning)
    store.adopt(settled.revision.state)
    return settled.revision.state.version


class Seeding:
    """One per gateway process."""

    def __init__(
        self, store: DesiredStateStore, instance: str, models: tuple[Model, ...], pools: tuple[Pool, ...]
    ) -> None:
        """instance: the gateway's name, stable over restarts. models: if empty, the database's state stays in force."""
        self._store = store
        self._instance = instance
        self._models = models
        self._pools = pools
        self._task = BackgroundTask("seeding", self._retry)
        self.done = not models
        """Whether the settings have been compared with the state in force, and written if they are new."""

    async def start(self) -> None:
        """Try once, and continue in the background if the database is unreachable.

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
        await seed(self._store, self._instance, self._models, self._pools)
        self.done = True

    async def _retry(self) -> None:
        logged, backoff = "", Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        while not self.done:
            await asyncio.sleep(backoff.next_s())
            try:
                await self._seed()
            except DatabaseAway as error:
                _log.debug("the database is still unreachable: %s", error.message)
            except ConfigError as error:  # an operator may correct what the database refuses
                if error.message != logged:
                    _log.error("the settings' models are not in force, trying again: %s", error.message)
                logged = error.message
        _log.info("the database can be reached, the settings' models are in force")
