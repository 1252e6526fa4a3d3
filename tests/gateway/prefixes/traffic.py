"""Requests as a gateway observes them, at any time, and what the worker makes of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import msgspec
from prometheus_client import CollectorRegistry

from control.prefixes.drops import look_for_drops
from control.prefixes.rollup import roll_up
from control.prefixes.upkeep_config import PrefixUpkeepConfig
from gateway.observability.metrics import GatewayMetrics
from gateway.prefixes.config import PrefixesConfig
from gateway.prefixes.observer import PrefixObserver
from gateway.prefixes.store import PrefixSamples
from gateway.prefixes.template import PrefixDigests
from tests.gateway.prefixes.prompts import ACME, asked, message

RULES = "Answer from the handbook alone, in whole sentences. " * 12
NOW = datetime(2026, 11, 22, 10, 20, tzinfo=UTC)
CONFIG = PrefixUpkeepConfig(least_requests=10)
CLOCK = [f"You are a clerk. It is 10:1{n % 10}:{n:02d}." for n in range(20)]


class Traffic:
    """One gateway and what its tenants send it."""

    def __init__(self, pool: asyncpg.Pool[Any], url: str, now: datetime = NOW) -> None:
        metrics = GatewayMetrics(CollectorRegistry())
        self.pool = pool
        self.url = url
        self.at = now
        self._samples = PrefixSamples(pool, metrics, PrefixObserver(PrefixDigests(b"s")), PrefixesConfig(flush_s=60))
        self._number = 0

    def ask(self, at: datetime, opening: str = "You are a clerk.", organization_id: str = ACME) -> None:
        self._number += 1
        messages = [message("system", f"{opening} {RULES}"), message("user", f"{self._number:06d}" * 15)]
        request = asked(messages, organization_id=organization_id, arrived_s=at.timestamp())
        self._samples.add(request.request_id, request.caller, request.endpoint, request.prepared)

    async def flush(self) -> None:
        """As a gateway does every so often."""
        await self._samples.flush()

    async def usual_hours(self, organization_id: str = ACME) -> None:
        """Of the same template, in each of the five before now."""
        for hour in range(5, 0, -1):
            for minute in range(20):
                self.ask(self.at - timedelta(hours=hour, minutes=minute), organization_id=organization_id)
        await self._samples.flush()

    async def now(self, openings: list[str], at: datetime | None = None, organization_id: str = ACME) -> None:
        for number, opening in enumerate(openings):
            self.ask((at or self.at) - timedelta(seconds=600 - number), opening, organization_id)
        await self._samples.flush()

    def upkeep(self, at: datetime | None = None) -> list[Any]:
        """What the worker does; returns the drops that have begun."""
        roll_up(self.url, sample_retention_days=7, now=at or self.at)
        return look_for_drops(self.url, CONFIG, now=at or self.at)

    async def events(self) -> list[tuple[str, Any]]:
        rows = await self.pool.fetch("SELECT type, data FROM gateway.webhook_events ORDER BY created_at")
        return [(row["type"], msgspec.json.decode(row["data"])) for row in rows]
