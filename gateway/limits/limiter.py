"""Reserves an upper bound before a request runs and settles it to what was used, exactly, over all gateways.

Counting is Valkey's (script.lua); this decides what to do around it: which buckets a key has, what happens when no
answer comes, and the heartbeat that keeps the reservations of a living gateway alive.
"""

from __future__ import annotations

import asyncio
import logging
import time

import hiredis
import msgspec

from contracts.errors import InternalError, LimiterUnavailable
from gateway.limits.bucket import Decision, Status, plan_of
from gateway.limits.config import LimitsConfig
from gateway.limits.key_limits import KeyLimits
from gateway.limits.local import LocalLimiter
from gateway.limits.metrics import LOCAL, NORMAL, REFUSING, LimitsMetrics
from gateway.limits.rate_state import KeyRateLimited, RateState, too_expensive
from gateway.limits.script import Calls, Script, decision, source
from gateway.limits.settlements import Settlements
from gateway.limits.valkey import CallTimeout, ConnectionLost, Valkey

PLANS_KEPT = 10_000
RENEW_BATCH = 500
BEATS_PER_LEASE = 3
DRAIN_S = 2.0


class Reservation(msgspec.Struct, frozen=True):
    """Leave to run one request of up to `tokens` tokens. state: for the response's headers; None when the key has no
    limits. calls, local: where it was counted."""

    id: str
    key_id: str
    tokens: int
    state: RateState | None = None
    calls: Calls | None = None
    local: bool = False


class Limiter:
    """One per gateway process. url: as gateway.limits.valkey reads it. Raises ConfigError when it is none."""

    def __init__(self, url: str, config: LimitsConfig, metrics: LimitsMetrics) -> None:
        self._config = config
        self._metrics = metrics
        lease_ms, record_ms = round(config.lease_s * 1_000), round(config.record_s * 1_000)
        self._script = Script(source(), lease_ms, record_ms)
        self._valkey = Valkey(url, config.call_timeout_s, greeting=(self._script.load,))
        self._valkey.on_change = self._on_change
        self._local = LocalLimiter(lease_ms, record_ms)
        self._plans: dict[str, tuple[KeyLimits, Calls | None]] = {}
        self._open: dict[str, tuple[float, Reservation]] = {}
        """Reservation id to (reserved at, itself), oldest first."""
        self._settlements: Settlements | None = None
        self._beating: asyncio.Task[None] | None = None
        self._interval_s = config.lease_s / BEATS_PER_LEASE
        self._show_mode(connected=False)

    async def start(self) -> None:
        """Connect. Valkey being away does not stop the start; keys with limits then go by `when_unavailable`."""
        config = self._config
        self._settlements = Settlements(
            self._valkey, self._script.load, config.max_delayed_settlements, config.record_s, self._metrics
        )
        await self._valkey.start()
        self._beating = asyncio.create_task(self._beat(), name="limits-heartbeat")

    async def stop(self) -> None:
        """Give settlements two seconds to arrive, then close. Reservations still open lapse with their lease."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
            self._beating = None
        if self._settlements is not None:
            try:
                await asyncio.wait_for(self._settlements.drain(), DRAIN_S)
            except TimeoutError:
                logging.getLogger(__name__).warning("stopped with settlements that did not reach Valkey")
            self._settlements.close()
        self._valkey.on_change = _ignore  # leaving is not losing
        await self._valkey.stop()
        if self._settlements is not None:
            self._settlements.close()

    @property
    def connected(self) -> bool:
        """Whether limits are counted in Valkey at the moment."""
        return self._valkey.connected

    async def wait_connected(self) -> None:
        """Return once limits are counted in Valkey."""
        await self._valkey.wait_ready()

    async def drain(self) -> None:
        """Return once every settlement so far is in Valkey, or given up."""
        await self._running().drain()

    async def reserve(self, reservation_id: str, key_id: str, limits: KeyLimits, tokens: int) -> Reservation:
        """Take one request, `tokens` tokens and one place from the key, or nothing at all.

        tokens: the most the request can use, prompt and output, all choices. The same id reserves once, however often
        it is asked. A key without limits costs nothing. Cancelling gives everything back. Raises KeyRateLimited
        (waiting helps), RequestTooExpensive (it does not), LimiterUnavailable.
        """
        calls = self._calls(key_id, limits)
        if calls is None:
            return Reservation(reservation_id, key_id, tokens)
        for bucket in calls.plan.buckets:
            amount = bucket.amount(1, tokens)
            if amount > bucket.limit:  # needs no counting, and no answer from Valkey could change it
                self._metrics.decisions.labels("too_expensive", bucket.counter).inc()
                raise too_expensive(bucket, amount)
        started_s = time.perf_counter()
        decided: Decision | None = None
        if self._valkey.connected:
            decided = await self._ask(calls, reservation_id, tokens)
        if decided is None:
            return self._reserve_without_valkey(reservation_id, key_id, limits, tokens)
        self._metrics.reserve_seconds.observe(time.perf_counter() - started_s)
        return self._conclude(Reservation(reservation_id, key_id, tokens, None, calls), decided)

    async def settle(self, reservation: Reservation, tokens: int, *, refund_request: bool = False) -> None:
        """Correct a reservation to the `tokens` really used and end its place; the rest goes back.

        refund_request: nothing ran, so the request itself is given back too. Settling again changes nothing. Returns
        when Valkey has it, so that whoever is answered next finds the place free at every gateway; without Valkey at
        once, and it is tried again behind. Never raises.
        """
        calls = reservation.calls
        if calls is None:
            return
        self._open.pop(reservation.id, None)
        requests, tokens = 0 if refund_request else 1, max(0, tokens)
        if reservation.local:
            buckets = calls.plan.buckets
            used = [bucket.amount(requests, tokens) for bucket in buckets]
            self._local.settle(_now_ms(), buckets, used, reservation.id)
            if not self._valkey.connected:
                return  # Valkey never heard of it; if a heartbeat announced it before, its lease lapses
        await self._running().settle(calls.settle(reservation.id, requests, tokens))

    def heartbeat(self) -> None:
        """Renew the leases of all reservations that have been open for a whole interval."""
        self._metrics.open.set(len(self._open))
        self._local.sweep(_now_ms())
        young_s = asyncio.get_running_loop().time() - self._interval_s
        groups: dict[int, tuple[Calls, list[str]]] = {}
        for reserved_s, reservation in self._open.values():
            if reserved_s > young_s:
                break
            calls = reservation.calls
            assert calls is not None
            groups.setdefault(id(calls), (calls, []))[1].append(reservation.id)
            if reservation.local:
                self._local.renew(_now_ms(), calls.plan.buckets, [reservation.id])
        for calls, ids in groups.values():
            for first in range(0, len(ids), RENEW_BATCH):
                try:
                    self._valkey.send(calls.renew(ids[first : first + RENEW_BATCH]), self._renewed)
                except ConnectionLost:
                    return  # two more beats fit into the lease

    async def _ask(self, calls: Calls, reservation_id: str, tokens: int) -> Decision | None:
        """Valkey's decision; None when it gave none in time. Whatever it took without our knowing is given back."""
        command = calls.reserve(reservation_id, 1, tokens)
        try:
            try:
                reply = await self._valkey.call(command)
            except hiredis.ReplyError as error:
                if not str(error).startswith("NOSCRIPT"):
                    raise
                self._valkey.send(self._script.load, _ignore)
                reply = await self._valkey.call(command)
        except (ConnectionLost, CallTimeout, hiredis.ReplyError) as error:
            logging.getLogger(__name__).debug("no decision for %s: %r", reservation_id, error)
            self._running().post(calls.settle(reservation_id, 0, 0))
            return None
        except asyncio.CancelledError:
            self._running().post(calls.settle(reservation_id, 0, 0))
            raise
        return decision(reply)  # type: ignore[arg-type]

    def _reserve_without_valkey(self, reservation_id: str, key_id: str, limits: KeyLimits, tokens: int) -> Reservation:
        if self._config.when_unavailable == "refuse":
            self._metrics.unavailable.labels("refused").inc()
            raise LimiterUnavailable("Limits cannot be counted at the moment. Try again shortly.", retry_after_s=1.0)
        self._metrics.unavailable.labels("local").inc()
        plan = plan_of(self._config.key_prefix, key_id, limits, share=self._config.expected_instances)
        assert plan is not None
        amounts = [bucket.amount(1, tokens) for bucket in plan.buckets]
        decided = self._local.reserve(_now_ms(), plan.buckets, amounts, reservation_id)
        if decided.status is Status.TOO_EXPENSIVE:
            # It fits the whole limit, which comes back with Valkey, only not this instance's share of it.
            raise LimiterUnavailable(
                "Limits are counted locally at the moment, and this request is larger than the local share. "
                "Try again shortly, or with fewer tokens.",
                retry_after_s=1.0,
            )
        return self._conclude(
            Reservation(reservation_id, key_id, tokens, None, Calls(self._script, plan), local=True), decided
        )

    def _conclude(self, asked: Reservation, decided: Decision) -> Reservation:
        assert asked.calls is not None
        buckets = asked.calls.plan.buckets
        state = RateState(buckets, decided.levels)
        if decided.status is Status.ADMITTED:
            self._metrics.admitted.inc()
            granted = Reservation(asked.id, asked.key_id, asked.tokens, state, asked.calls, asked.local)
            self._open[asked.id] = (asyncio.get_running_loop().time(), granted)
            return granted
        if decided.status is Status.SETTLED:
            raise InternalError(f"reservation {asked.id} was settled before it was made; ids must not be used twice")
        bucket = buckets[decided.decided_by - 1]
        amount = bucket.amount(1, asked.tokens)
        if decided.status is Status.TOO_EXPENSIVE:
            self._metrics.decisions.labels("too_expensive", bucket.counter).inc()
            raise too_expensive(bucket, amount)
        self._metrics.decisions.labels("refused", bucket.counter).inc()
        raise KeyRateLimited(bucket, amount, decided.wait_ms, state)

    def _calls(self, key_id: str, limits: KeyLimits) -> Calls | None:
        known = self._plans.get(key_id)
        if known is not None and known[0] == limits:
            return known[1]
        if len(self._plans) >= PLANS_KEPT:
            self._plans.clear()
        plan = plan_of(self._config.key_prefix, key_id, limits)
        calls = Calls(self._script, plan) if plan is not None else None
        self._plans[key_id] = (limits, calls)
        return calls

    def _running(self) -> Settlements:
        assert self._settlements is not None, "start() comes first"
        return self._settlements

    def _renewed(self, reply: object) -> None:
        if isinstance(reply, hiredis.ReplyError) and str(reply).startswith("NOSCRIPT") and self._valkey.connected:
            self._valkey.send(self._script.load, _ignore)

    def _on_change(self, connected: bool) -> None:
        self._show_mode(connected)
        if connected:
            logging.getLogger(__name__).info("limits are counted in Valkey")
            self._running().retry()
        else:
            logging.getLogger(__name__).warning(
                "Valkey is gone; keys with limits: when_unavailable=%s", self._config.when_unavailable
            )

    def _show_mode(self, connected: bool) -> None:
        without = LOCAL if self._config.when_unavailable == "local" else REFUSING
        self._metrics.mode.set(NORMAL if connected else without)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                self.heartbeat()
            except Exception:
                logging.getLogger(__name__).exception("heartbeat failed")


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _ignore(_: object) -> None:
    pass
