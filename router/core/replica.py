"""One engine as the router sees it: what it should be, how it fares, what it has been given."""

from __future__ import annotations

from enum import Enum

from contracts.lease import Engine
from engines.base import Load


class Health(Enum):
    """What is known of a replica. Only HEALTHY ones are given leases."""

    UNKNOWN = "unknown"
    """Not polled yet. Asks wait for the answer, they are not refused."""
    HEALTHY = "healthy"
    SUSPECT = "suspect"
    """A gateway met a fault on it and the poll that decides is under way. Asks wait."""
    UNHEALTHY = "unhealthy"


class Replica:
    """Mutable; owned by `Fleet`. leases and tokens are counted when granted, not when the stream starts."""

    __slots__ = (
        "chosen",
        "detail",
        "driver",
        "failures",
        "foreign",
        "health",
        "id",
        "leases",
        "load",
        "max_concurrency",
        "peak",
        "pool",
        "tokens",
        "url",
        "wanted",
        "weight",
    )

    def __init__(self, replica_id: str) -> None:
        self.id = replica_id
        self.pool = ""
        self.url = ""
        self.driver = ""
        self.weight = 0.0
        self.max_concurrency = 0
        self.wanted = False
        """It is part of the desired state. Otherwise it is only remembered until its leases have ended."""
        self.health = Health.UNKNOWN
        self.detail = "not polled yet"
        self.failures = 0
        """Polls failed in a row."""
        self.load = Load()
        self.foreign = 0
        """Requests the engine reported beyond our own leases at the last poll: someone else's, or leases forgotten."""
        self.leases = 0
        self.peak = 0
        """Most leases held at once since the last poll: a report that was on its way while some ended is not taken for
        foreign load."""
        self.tokens = 0
        """Upper bound of what the live leases hold: prompts and outputs."""
        self.chosen = 0
        """Number of the last decision that chose it: breaks ties towards the one that has rested longest."""

    @property
    def usable(self) -> bool:
        """It may be given leases now, as far as health and weight go."""
        return self.wanted and self.weight > 0 and self.health is Health.HEALTHY

    @property
    def free(self) -> bool:
        """It is usable and has a place left."""
        return self.leases < self.max_concurrency and self.usable

    @property
    def hopeful(self) -> bool:
        """Waiting for it makes sense: it is usable, or a poll is about to tell."""
        return self.wanted and self.weight > 0 and self.health is not Health.UNHEALTHY

    def engine(self, engine_model: str) -> Engine:
        """What a gateway needs to send it a request."""
        return Engine(self.id, self.url, self.driver, engine_model, self.pool)

    def probed(self, healthy: bool, detail: str, load: Load | None, failure_threshold: int) -> None:
        """Take in one poll. One success heals; a suspect falls at the first failure, the others at the threshold."""
        if healthy:
            self.health, self.failures, self.detail = Health.HEALTHY, 0, detail
            if load is not None:
                self.load = load
                self.foreign = max(0, load.running + load.waiting - self.peak)
                self.peak = self.leases
            return
        self.failures += 1
        self.detail = detail
        if self.health is not Health.HEALTHY or self.failures >= failure_threshold:
            self.health = Health.UNHEALTHY
            self.load, self.foreign = Load(), 0

    def suspected(self, detail: str) -> bool:
        """A gateway met a fault on it. True when this is news, and a poll is wanted."""
        if self.health is not Health.HEALTHY:
            return False
        self.health, self.detail = Health.SUSPECT, detail
        return True
