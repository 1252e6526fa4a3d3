"""Empties the journals of instances that do not return, such as after their configured number was lowered.

A folder whose lock is free, and was free at the previous check, is handled exactly as by its owner: locked, read,
resolved, shipped, and then deleted. The lock makes that safe, because an owner that returns meanwhile waits, and then
starts in an empty folder. If the adopter crashes, another one continues.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from contracts.background_task import BackgroundTask
from contracts.errors import SlipstreamError
from gateway.metering.config import MeteringConfig
from gateway.metering.journal.disk import Disk
from gateway.metering.journal.folder import JournalFolder
from gateway.metering.journal.journal import Journal
from gateway.metering.journal.recovery import AskEngine, Recovery
from gateway.metering.ledger.ledger import Ledger
from gateway.metering.ledger.shipper import Shipper
from gateway.metering.metrics import MeteringMetrics

logger = logging.getLogger(__name__)


class OrphanJournals:
    """A background task of one gateway instance that checks the folders next to its own journal."""

    def __init__(
        self,
        own: Path,
        ask: AskEngine,
        ledger: Ledger,
        config: MeteringConfig,
        metrics: MeteringMetrics,
        drain_timeout_s: float = 10.0,
        on_emptied: Callable[[str], Awaitable[bool]] | None = None,
    ) -> None:
        """own: this instance's journal folder, whose siblings are the other instances'.

        drain_timeout_s: limit of the drain and of `on_emptied`, each shorter than an owner waits for its lock, so that
        a server that does not answer does not keep the owner from starting. on_emptied: called with the name of each
        instance whose whole journal is in the ledger, before its owner can return; the journal is adopted again later
        if it returns False.
        """
        self._own = own
        self._ask = ask
        self._ledger = ledger
        self._config = msgspec.structs.replace(config, lock_timeout_s=0)
        self._metrics = metrics.without_gauges()
        self._drain_timeout_s = drain_timeout_s
        self._on_emptied = on_emptied
        self._free: set[Path] = set()
        self._task = BackgroundTask.every(config.adopt_after_s, self.look, "journal adoption", at_once=True)

    def start(self) -> None:
        """Check now and every `adopt_after_s`."""
        self._task.start()

    async def stop(self) -> None:
        """Stop checking. A running adoption is left in a state that any instance can continue."""
        await self._task.stop()

    async def look(self) -> list[Path]:
        """Adopt the folders that were free at this check and the previous one. Returns the emptied folders."""
        free = await asyncio.to_thread(self._free_folders)
        adopted = [path for path in sorted(free & self._free) if await self._adopt(path)]
        self._free = free.difference(adopted)
        return adopted

    def _free_folders(self) -> set[Path]:
        """Siblings that have segments and that no process has locked."""
        free = set()
        for path in self._own.parent.iterdir():
            if path == self._own or not path.is_dir():
                continue
            folder = JournalFolder(path, Disk())
            if folder.segments() and folder.try_lock(create=False):
                folder.unlock()
                free.add(path)
        return free

    async def _adopt(self, path: Path) -> bool:
        journal = Journal(path, self._config, self._metrics)
        try:
            await journal.start()
        except SlipstreamError as error:
            logger.info("journal %s not adopted: %s", path, error)
            return False
        shipper = Shipper(journal, self._ledger, self._config, self._metrics)
        try:
            await Recovery(journal, self._ask, self._config, self._metrics).resolve()
            shipper.start()
            emptied = await shipper.drain(self._drain_timeout_s)
            await shipper.stop()
            if emptied and self._on_emptied is not None:
                async with asyncio.timeout(self._drain_timeout_s):
                    emptied = await self._on_emptied(path.name)
            if emptied:
                await journal.discard()
                self._metrics.adopted.inc()
                logger.warning("journal %s: adopted from an instance that is gone; all of it is in the ledger", path)
            return emptied
        except (SlipstreamError, TimeoutError) as error:
            logger.warning("journal %s not adopted: %s", path, str(error) or "a server did not answer in time")
            return False
        finally:
            await asyncio.shield(_leave(shipper, journal))


async def _leave(shipper: Shipper, journal: Journal) -> None:
    await shipper.stop()
    await journal.stop()
