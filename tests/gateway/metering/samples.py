"""Records, disks that fail, and a ledger in memory, for the tests of the journal and the ledger."""

from __future__ import annotations

import contextlib
import errno
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from contracts.dated_request_id import mint
from contracts.generation import Tier
from contracts.usage import Finish, Outcome, Usage
from gateway.metering.config import MeteringConfig
from gateway.metering.journal.disk import Disk
from gateway.metering.journal.journal import Journal
from gateway.metering.journal.records import AttemptKey, Closed, Opened, Placed
from gateway.metering.metrics import MeteringMetrics

TENANT = str(uuid.UUID(int=7))


def opened(request_id: str | None = None, attempt: int = 0) -> Opened:
    """An attempt of a fresh request."""
    return Opened(
        request_id=request_id or mint(),
        attempt=attempt,
        organization_id=TENANT,
        project_id=TENANT,
        key_id=TENANT,
        model="slipstream-chat",
        tier=Tier.CHAT,
        endpoint="/v1/chat/completions",
        stream=True,
        max_tokens=64,
        prompt_tokens_estimate=12,
        opened_at=time.time(),
    )


def placed(record: Opened) -> Placed:
    """It runs on chat-0."""
    return Placed(record.request_id, record.attempt, "chat-0", "http://127.0.0.1:1", "embedded", "chat")


def closed(record: Opened, tokens: int = 5, *, billed: bool = True, model: str | None = None) -> Closed:
    """It ended well after `tokens`."""
    return Closed(
        opened=record,
        outcome=Outcome.EXACT,
        finish=Finish.COMPLETE,
        usage=Usage(prompt_tokens=12, completion_tokens=tokens, cached_tokens=3, reasoning_tokens=1),
        status=200,
        closed_at=time.time(),
        replica_id="chat-0",
        phases_ms={"auth": 0.25, "decode": 12.5},
        billed=billed,
        pool="chat",
        driver="embedded",
    )


def metrics() -> MeteringMetrics:
    """On a registry of their own."""
    return MeteringMetrics(CollectorRegistry())


def value(registry: CollectorRegistry, name: str, **labels: str) -> float:
    """A sample's value; 0 when it has none yet."""
    return registry.get_sample_value(name, labels) or 0.0


async def start(
    path: Path,
    config: MeteringConfig | None = None,
    disk: Disk | None = None,
    registry: CollectorRegistry | None = None,
) -> Journal:
    """A started journal."""
    journal = Journal(path, config or quick(), MeteringMetrics(registry or CollectorRegistry()), disk)
    await journal.start()
    return journal


@contextlib.asynccontextmanager
async def journal_in(path: Path, config: MeteringConfig | None = None, **parts: Any) -> AsyncIterator[Journal]:
    """A journal that is stopped at the end; parts: of `start`."""
    journal = await start(path, config, **parts)
    try:
        yield journal
    finally:
        await journal.stop()


async def ended(journal: Journal) -> Opened:
    """A fresh attempt from its opening to its durable end."""
    record = opened()
    journal.opened(record)
    await journal.closed(closed(record))
    return record


def quick(**changes: float) -> MeteringConfig:
    """Settings with short waits."""
    defaults: dict[str, float] = {
        "segment_bytes": 4_096,
        "probe_interval_s": 0.01,
        "lock_timeout_s": 0,
        "ship_interval_s": 0.001,
        "retry_max_s": 0.1,
        "resolve_timeout_s": 0.05,
        "adopt_after_s": 0.01,
    }
    return MeteringConfig(**{**defaults, **changes})  # type: ignore[arg-type]


async def rows(journal: Journal) -> list[Closed]:
    """Everything durable from the shipped position on."""
    found: list[Closed] = []
    position = journal.shipped()
    while True:
        more, position = await journal.read(position, 7)
        if not more:
            return found
        found += more


class FaultyDisk(Disk):
    """A real disk with switches."""

    def __init__(self) -> None:
        self.write_error: OSError | None = None
        self.short_write = False
        self.sync_error: OSError | None = None
        self.syncs = 0

    def full(self) -> None:
        """Half a write fits, then nothing."""
        self.short_write = True

    def broken(self) -> None:
        """fdatasync reports an I/O error."""
        self.sync_error = OSError(errno.EIO, "I/O error")

    def mend(self) -> None:
        """All is well again."""
        self.write_error = self.sync_error = None
        self.short_write = False

    def write(self, descriptor: int, data: bytes) -> int:
        if self.write_error is not None:
            raise self.write_error
        if self.short_write:
            self.write_error = OSError(errno.ENOSPC, "disk full")
            return super().write(descriptor, data[: len(data) // 2])
        return super().write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        self.syncs += 1
        if self.sync_error is not None:
            raise self.sync_error
        super().sync(descriptor)


class MemoryLedger:
    """The ledger's naive twin: first row of a key wins, a second billed attempt of a request is an error."""

    def __init__(self) -> None:
        self.rows: dict[AttemptKey, Closed] = {}
        self.error: Exception | None = None
        """Raised instead of inserting."""
        self.error_after: Exception | None = None
        """Raised once, after having inserted: a commit whose answer was lost."""

    async def insert(self, rows: Sequence[Closed], gateway_id: str) -> int:
        if self.error is not None:
            raise self.error
        new = 0
        for row in rows:
            if row.key not in self.rows:
                self.rows[row.key] = row
                new += 1
        if self.error_after is not None:
            error, self.error_after = self.error_after, None
            raise error
        return new
