"""Says who a key belongs to: from memory while that is safe, else from the database, else not at all.

A revocation holds in every gateway within `trust_s`. The table announces each change (a trigger), every keyring listens
and forgets that key; and memory is believed only while the listening connection has proven within `trust_s` that it
would have delivered. Otherwise each request asks the database, and when that fails too the answer is AuthUnavailable.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

import asyncpg

from contracts.errors import (
    AuthError,
    AuthUnavailable,
    ConfigError,
    ExpiredKey,
    InvalidKey,
    RevokedKey,
    TenantDisabled,
)
from contracts.generation import Caller, Tier
from gateway.auth import keys
from gateway.auth.cache import KeyCache
from gateway.auth.config import AuthConfig
from gateway.auth.key_record import KeyRecord, Reason, Refusal
from gateway.auth.last_used import LastUsed
from gateway.auth.scopes import Scope
from gateway.db.engine import FAILURES, borrow, lazy_pool
from gateway.db.listener import Listener
from gateway.db.tables import KEYS_CHANNEL
from gateway.limits.levels import Levels
from gateway.limits.store import levels_of

MAX_READS = 4
"""A key that changes while it is read is read again, this often at most."""

# Of a key that was rotated, the secret before still opens until the end of the overlap.
LOOKUP = """
SELECT api_keys.id, project_id, organization_id, revoked_at IS NOT NULL AS revoked,
       projects.disabled_at IS NOT NULL AS project_disabled,
       organizations.disabled_at IS NOT NULL AS organization_disabled,
       extract(epoch FROM CASE WHEN hash = $1 THEN expires_at ELSE least(expires_at, previous_expires_at) END)::float8
           AS expires_at,
       scopes, models, tiers
  FROM gateway.api_keys
  JOIN gateway.projects ON projects.id = project_id
  JOIN gateway.organizations ON organizations.id = organization_id
 WHERE hash = $1 OR previous_hash = $1
"""

_log = logging.getLogger(__name__)

ValueT = TypeVar("ValueT")
Answer = KeyRecord | Refusal | None
"""None: the database could not be asked."""


class _Flight:
    """One lookup under way. `stale`: the key changed since it began, so its answer may be the old one."""

    __slots__ = ("stale", "task")

    def __init__(self) -> None:
        self.stale = False
        self.task: asyncio.Task[Answer]


class Keyring:
    """Identifies callers. One per gateway process.

    url: a direct connection to PostgreSQL; a pooler that shares sessions cannot LISTEN. pepper: the deployment's.
    on_lookup: called after each question to the database with its outcome (`known`, a Reason,
    `unavailable`) and how long it took in seconds. Raises ConfigError for settings that contradict each other.
    """

    def __init__(
        self,
        url: str,
        pepper: bytes,
        config: AuthConfig,
        *,
        on_lookup: Callable[[str, float], None] = lambda _outcome, _seconds: None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if config.heartbeat_s >= config.trust_s:
            raise ConfigError(
                f"auth.heartbeat_s: {config.heartbeat_s} must be below auth.trust_s ({config.trust_s}), "
                "or memory is never trusted; a quarter of it is a good choice",
                param="auth.heartbeat_s",
            )
        self._pepper = pepper
        self._config = config
        self._on_lookup = on_lookup
        self._clock = clock
        self._monotonic = monotonic
        self._trust_s = config.trust_s
        self._salt = os.urandom(32)
        self._cache = KeyCache(config.cached_keys, config.cached_refusals)
        self._last_used = LastUsed(config.last_used_every_s)
        self._flights: dict[bytes, _Flight] = {}
        self._writer: asyncio.Task[None] | None = None
        self._reachable = True
        self._url = url
        self._pool: asyncpg.Pool[Any] | None = None
        self._listener = Listener(
            url,
            {KEYS_CHANNEL: self._changed},
            on_joined=self._changed_all,
            heartbeat_s=config.heartbeat_s,
            heartbeat_timeout_s=config.heartbeat_timeout_s,
            name="slipstream-keyring-listen",
            monotonic=monotonic,
        )

    @property
    def trusted(self) -> bool:
        """Whether memory may be believed now."""
        return self._monotonic() < self._listener.proven_at_s + self._trust_s

    async def start(self) -> None:
        """Begin listening. Returns even when the database is away: keys are then refused until it is back."""
        self._pool = await lazy_pool(
            self._url,
            size=self._config.connections,
            connect_timeout_s=self._config.lookup_timeout_s,
            name="slipstream-keyring",
        )
        await self._listener.start()
        self._writer = asyncio.create_task(self._write_last_used(self._pool), name="keyring-last-used")

    async def stop(self) -> None:
        """Stop; identify() raises AuthUnavailable from now on. Idempotent."""
        writer, self._writer = self._writer, None
        tasks = [flight.task for flight in self._flights.values()] + ([writer] if writer else [])
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._listener.stop()
        pool, self._pool = self._pool, None
        if pool is not None:
            with contextlib.suppress(*FAILURES):
                async with asyncio.timeout(self._config.lookup_timeout_s):
                    await self._last_used.write(pool)
                    await pool.close()
            pool.terminate()

    def cached(self, secret: str) -> KeyRecord | None:
        """The key's record if it is in memory, trusted and not expired. None: ask identify(), which knows why."""
        if self._monotonic() >= self._listener.proven_at_s + self._trust_s or len(secret) != keys.LENGTH:
            return None
        record = self._cache.record(self._fingerprint(secret))
        if record is None:
            return None
        now = self._clock()
        if record.expires_at is not None and record.expires_at <= now:
            return None
        self._last_used.seen[record.caller.key_id] = now
        return record

    async def identify(self, secret: str) -> KeyRecord:
        """The record of a key that may be used now.

        Raises InvalidKey, RevokedKey, ExpiredKey, or AuthUnavailable when neither memory nor the database can say.
        """
        keys.check(secret)
        fingerprint = self._fingerprint(secret)
        key_hash = keys.hash_of(secret, self._pepper)
        answer: Answer = None
        if self.trusted:
            answer = self._cache.record(fingerprint) or self._cache.refusal(key_hash)
        if answer is None:
            answer = await self._look_up(fingerprint, key_hash)
        match answer:
            case None:
                raise AuthUnavailable("API keys cannot be verified right now; try again.", retry_after_s=1.0)
            case Refusal():
                raise _refused(answer)
            case KeyRecord():
                now = self._clock()
                if answer.expires_at is not None and answer.expires_at <= now:
                    expired = ExpiredKey("This API key has expired.")
                    expired.caller = answer.caller
                    raise expired
                self._last_used.seen[answer.caller.key_id] = now
                return answer

    def _fingerprint(self, secret: str) -> bytes:
        # A keyed hash under a key of this process: a third of the cost of the HMAC, and memory holds nothing reusable.
        return hashlib.blake2b(secret.encode("utf-8", "surrogatepass"), key=self._salt, digest_size=16).digest()

    async def _look_up(self, fingerprint: bytes, key_hash: bytes) -> Answer:
        """Ask the database, together with everybody who wants to know about the same key."""
        flight = self._flights.get(key_hash)
        if flight is None:
            flight = self._flights[key_hash] = _Flight()
            flight.task = asyncio.create_task(self._fly(flight, fingerprint, key_hash))
            flight.task.add_done_callback(lambda _: self._flights.pop(key_hash))
        # wait() and not await: a caller that is cancelled must not take the others' answer with it.
        await asyncio.wait([flight.task])
        return None if flight.task.cancelled() else flight.task.result()

    async def _fly(self, flight: _Flight, fingerprint: bytes, key_hash: bytes) -> Answer:
        answer: Answer = None
        for _ in range(MAX_READS):
            flight.stale = False
            answer = await self._ask(key_hash)
            if answer is None:
                return None
            if not flight.stale:
                # Safe while not trusted, too: what is put here is not read before the listener joins, which clears it.
                self._cache.put(fingerprint, key_hash, answer)
                return answer
        return answer

    async def _ask(self, key_hash: bytes) -> Answer:
        if self._pool is None:
            return None
        began_s = self._monotonic()
        try:
            # The timeout is part of the promise: an answer held up longer may describe a key revoked since.
            async with asyncio.timeout(self._config.lookup_timeout_s), borrow(self._pool) as connection:
                row = await connection.fetchrow(LOOKUP, key_hash)
                levels = await _levels(connection, row)
        except FAILURES as error:
            if self._reachable:
                _log.warning("keys cannot be looked up: %r", error)
            self._reachable = False
            self._on_lookup("unavailable", self._monotonic() - began_s)
            return None
        self._reachable = True
        answer = _answer(row, levels)
        outcome = "known" if isinstance(answer, KeyRecord) else answer.reason.value
        self._on_lookup(outcome, self._monotonic() - began_s)
        return answer

    def _changed(self, payload: str) -> None:
        """A key changed: forget it, and distrust the lookup that may have read it before."""
        try:
            key_hash = bytes.fromhex(payload)
        except ValueError:
            self._changed_all()
            return
        self._cache.drop(key_hash)
        flight = self._flights.get(key_hash)
        if flight is not None:
            flight.stale = True

    def _changed_all(self) -> None:
        self._cache.clear()
        for flight in self._flights.values():
            flight.stale = True

    async def _write_last_used(self, pool: asyncpg.Pool[Any]) -> None:
        while True:
            await asyncio.sleep(self._config.last_used_every_s)
            with contextlib.suppress(*FAILURES):
                await self._last_used.write(pool)


async def _levels(connection: asyncpg.Connection[Any], row: asyncpg.Record | None) -> Levels:
    """A change in between is announced, and the key then read again."""
    if row is None:
        return Levels()
    return await levels_of(connection, row["organization_id"], row["project_id"], row["id"])


def _answer(row: asyncpg.Record | None, levels: Levels) -> KeyRecord | Refusal:
    if row is None:
        return Refusal(Reason.UNKNOWN)
    caller = Caller(
        organization_id=str(row["organization_id"]), project_id=str(row["project_id"]), key_id=str(row["id"])
    )
    if row["revoked"]:
        return Refusal(Reason.REVOKED, caller)
    if row["organization_disabled"]:
        return Refusal(Reason.ORGANIZATION_DISABLED, caller)
    if row["project_disabled"]:
        return Refusal(Reason.PROJECT_DISABLED, caller)
    return KeyRecord(
        caller=caller,
        levels=levels,
        expires_at=row["expires_at"],
        scopes=_set(row["scopes"], Scope),
        models=_set(row["models"], str),
        tiers=_set(row["tiers"], Tier),
    )


def _set(values: list[str] | None, kind: Callable[[str], ValueT]) -> frozenset[ValueT] | None:
    return None if values is None else frozenset(map(kind, values))


def _refused(refusal: Refusal) -> AuthError:
    error: AuthError
    match refusal.reason:
        case Reason.UNKNOWN:
            error = InvalidKey("This API key does not exist.")
        case Reason.REVOKED:
            error = RevokedKey("This API key has been revoked.")
        case Reason.PROJECT_DISABLED:
            error = TenantDisabled("The project of this API key is disabled; an administrator can enable it again.")
        case Reason.ORGANIZATION_DISABLED:
            error = TenantDisabled("The organization of this API key is disabled; ask whoever runs this deployment.")
    error.caller = refusal.caller
    return error
