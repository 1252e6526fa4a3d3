"""Servers to limit with, and a limiter whose metrics can be read."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any, cast

import redis
from prometheus_client import CollectorRegistry

from contracts.generation import Caller, Tier
from gateway.limits.config import LimitsConfig
from gateway.limits.cost import Cost
from gateway.limits.levels import Level, Levels, Limits, Rule
from gateway.limits.limiter import Limiter
from gateway.limits.metrics import LimitsMetrics
from gateway.limits.plan import Counter
from gateway.limits.rate_state import RateState
from gateway.limits.reservations import Reservation
from gateway.limits.script import decision
from gateway.limits.spending import Crossing, Subject
from gateway.wire.rate_state import CounterState
from tests.waiting import eventually_blocking


class Store:
    """A server of our own that can be killed, frozen and started again on the same data."""

    def __init__(self, binary: str, folder: Path) -> None:
        self._binary = binary
        self._folder = folder
        self.socket = folder / "s"
        self.url = f"unix://{self.socket}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [self._binary, "--port", "0", "--unixsocket", str(self.socket), "--dir", str(self._folder)]
        command += ["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        with self.client() as client:

            def ready() -> bool:
                try:
                    return bool(client.ping())
                except (redis.ConnectionError, redis.BusyLoadingError):
                    return False

            eventually_blocking(ready)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._process is not None:
            self.thaw()
            self.kill()

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url)


class GivenStore:
    """A server that somebody else runs."""

    def __init__(self, url: str) -> None:
        self.url = url

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url)


class NothingSpent:
    """An empty ledger, of one gateway."""

    def __init__(self) -> None:
        self._joined: set[str] = set()

    async def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def spent_micro(self, subject: Subject, since_ms: int, without: Collection[str]) -> int:
        return 0

    async def join(self, instance: str, epoch: str) -> None:
        self._joined.add(instance)

    async def leave(self, instance: str) -> None:
        self._joined.discard(instance)

    async def instances(self) -> set[str]:
        return set(self._joined)

    async def crossed(self, crossing: Crossing) -> None:
        return None


async def _drained(timeout_s: float) -> bool:
    return True


class MeasuredLimiter(Limiter):
    """With a registry of its own."""

    def __init__(
        self, url: str, *, instance: str = "0", spending: Any = None, drain: Any = None, **config: Any
    ) -> None:
        """spending, drain: None: a ledger of its own in which nothing is spent."""
        self._registry = CollectorRegistry()
        metrics = LimitsMetrics(self._registry)
        super().__init__(
            url,
            LimitsConfig(**{"call_timeout_s": 10, **config}),  # a busy machine must not stand for one that is gone
            metrics,
            currency="USD",
            instance=instance,
            spending=spending or NothingSpent(),
            drain=drain or _drained,
        )

    @property
    def open_reservations(self) -> int:
        return len(self._open)

    async def left(self, levels: Levels, tier: Tier) -> tuple[int, ...]:
        """What is left in every rule now, as in a Decision, taking nothing."""
        calls = self._calls(levels, tier)
        assert calls is not None
        return decision(await self._valkey.call(calls.look())).left

    def metric(self, name: str, **labels: str) -> float:
        return self._registry.get_sample_value(f"slipstream_limits_{name}", labels) or 0.0

    async def take(
        self, reservation_id: str, key: str, limits: Limits, tokens: int = 0, *, cost: Cost | None = None
    ) -> Reservation:
        """Reserve for a key whose only limits are these; `tokens` are all output."""
        return await self.reserve(*asked(reservation_id, key, limits, tokens, cost=cost))


def asked(
    reservation_id: str, key: str, limits: Limits, tokens: int = 0, *, cost: Cost | None = None
) -> tuple[str, Caller, Tier, Levels, Cost]:
    """The arguments of a reserve; every key is alone in its organization."""
    caller = Caller(f"org-{key}", f"project-{key}", key)
    levels = Levels.of(caller.organization_id, [Rule(Level.KEY, key, None, limits)])
    return reservation_id, caller, Tier.CHAT, levels, cost or Cost(0, tokens, 0)


AnyStore = Store | GivenStore
MakeLimiter = Callable[..., Awaitable[MeasuredLimiter]]


def lapse(client: redis.Redis, organization_id: str, instance: str = "") -> None:
    """The leases of a gateway's runs end now in this organization, or those of all gateways, as if time had passed."""
    key = f"slipstream:{{{organization_id}}}:epochs"
    for epoch in cast("list[bytes]", client.hkeys(key)):
        if epoch.decode().startswith(instance):
            client.hset(key, epoch, 0)


def left(state: RateState | None, counter: Counter) -> CounterState:
    """What a decision said about a counter that is limited."""
    found = state.counter(counter) if state is not None else None
    assert found is not None
    return found
