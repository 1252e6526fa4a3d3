"""Finds a key's owner, in memory while that is safe, else in the database.

A revocation holds in every gateway within `trust_s`, or `lookup_timeout_s` if that is longer. A trigger announces each
change of the table, and every keyring listens and forgets that key. Memory is trusted only while the listening
connection has proven within `trust_s` that it would have delivered. Otherwise, each request queries the database, and a
failed query raises AuthUnavailable.

Memory is not read before the listener joins, which clears it. So it may store an answer while the channel is down.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import asyncpg

from contracts.background_task import BackgroundTask
from contracts.errors import AuthError, AuthUnavailable, ConfigError, ExpiredKey, InvalidKey, RevokedKey, TenantDisabled
from gateway.auth import delegation, keys
from gateway.auth.cache import KeyCache
from gateway.auth.config import AuthConfig
from gateway.auth.directory import read_keys
from gateway.auth.key_record import TENANTS, Answer, KeyRecord, Reason, Refusal
from gateway.auth.last_used import LastUsed
from gateway.auth.lookups import ALL, Lookups
from storage.channels import KEYS_CHANNEL
from storage.engine import FAILURES, borrow, lazy_pool
from storage.notification_listener import NotificationListener

_log = logging.getLogger(__name__)


def check(config: AuthConfig) -> None:
    """Raises ConfigError for settings that contradict each other."""
    if config.heartbeat_s >= config.trust_s:
        raise ConfigError(
            f"gateway.auth.trust_s: {config.trust_s:g} must be above {config.heartbeat_s:g}, the interval between two "
            "proofs, or memory is never trusted",
            param="gateway.auth.trust_s",
        )


class Keyring:
    """Identifies the callers of one gateway process.

    url: a direct connection to PostgreSQL; a pooler that shares sessions cannot LISTEN. pepper: the deployment's. also:
    callbacks for other channels, called for each announcement and whenever one may have been missed. Raises ConfigError
    for settings that contradict each other.
    """

    def __init__(
        self,
        url: str,
        pepper: bytes,
        config: AuthConfig,
        *,
        also: Mapping[str, Callable[[], None]] = MappingProxyType({}),
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        check(config)
        self._also = tuple(also.values())
        self._pepper = pepper
        self._config = config
        self._clock = clock
        self._monotonic = monotonic
        self._trust_s = config.trust_s
        self._salt = os.urandom(32)
        self._cache = KeyCache(config.cached_keys, config.cached_refusals)
        self._last_used = LastUsed(config.last_used_every_s)
        self._lookups = Lookups(
            self._ask, self._cache.put, readers=config.connections, batch_keys=config.lookup_batch_keys
        )
        self._writer = BackgroundTask.every(config.last_used_every_s, self._write_last_used, "keyring-last-used")
        self._reachable = True
        self._url = url
        self._pool: asyncpg.Pool[Any] | None = None
        self._listener = NotificationListener(
            url,
            {
                KEYS_CHANNEL: self._changed,
                **{channel: _without_payload(callback) for channel, callback in also.items()},
            },
            on_joined=self._joined,
            heartbeat_s=config.heartbeat_s,
            heartbeat_timeout_s=config.heartbeat_timeout_s,
            name="slipstream-keyring-listen",
            monotonic=monotonic,
        )

    @property
    def trusted(self) -> bool:
        """Whether memory may be trusted now."""
        return self._monotonic() < self._listener.proven_at_s + self._trust_s

    async def start(self) -> None:
        """Begin listening. Returns even if the database is unreachable; keys are then refused until it is back."""
        self._pool = await lazy_pool(
            self._url,
            size=self._config.connections,
            connect_timeout_s=self._config.lookup_timeout_s,
            name="slipstream-keyring",
        )
        await self._listener.start()
        self._writer.start()

    async def stop(self) -> None:
        """Stop. `identify` then raises AuthUnavailable. Idempotent."""
        await self._writer.stop()
        await self._lookups.stop()
        await self._listener.stop()
        pool, self._pool = self._pool, None
        if pool is not None:
            with contextlib.suppress(*FAILURES):
                async with asyncio.timeout(self._config.lookup_timeout_s):
                    await self._last_used.write(pool)
                    await pool.close()
            pool.terminate()

    def cached(self, secret: str) -> KeyRecord | None:
        """The key's record if it is in memory, trusted and not expired; None otherwise: then call `identify`."""
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

        Raises InvalidKey, RevokedKey, ExpiredKey, TenantDisabled, or AuthUnavailable if memory and database fail.
        """
        if secret.startswith(delegation.PREFIXES):
            key_hash = delegation.key_hash_of(secret, self._pepper, self._clock())
            known = self._cache.record_of(key_hash)
            fingerprint = self._fingerprint(key_hash.hex())
            record = await self._record_of(secret, fingerprint, key_hash, known)
            return record.for_background() if secret.startswith(delegation.BACKGROUND_PREFIX) else record.for_lines()
        keys.check(secret)
        fingerprint = self._fingerprint(secret)
        key_hash = keys.hash_of(secret, self._pepper)
        return await self._record_of(secret, fingerprint, key_hash, self._cache.record(fingerprint))

    async def _record_of(self, secret: str, fingerprint: bytes, key_hash: bytes, known: KeyRecord | None) -> KeyRecord:
        """known: the record in memory. Raises the errors of `identify`."""
        answer: Answer = None
        if self.trusted:
            answer = known or self._cache.refusal(key_hash)
        if answer is None:
            answer = await self._lookups.ask(fingerprint, key_hash, self._config.lookup_timeout_s)
        match answer:
            case None:
                raise AuthUnavailable("API keys cannot be verified right now; try again.", retry_after_s=1.0)
            case Refusal():
                raise _refused(answer, secret)
            case KeyRecord():
                now = self._clock()
                if answer.expires_at is not None and answer.expires_at <= now:
                    expired = ExpiredKey("This API key has expired.")
                    expired.caller = answer.caller
                    raise expired
                self._last_used.seen[answer.caller.key_id] = now
                return answer

    def _fingerprint(self, secret: str) -> bytes:
        # A hash with a key of this process costs a third of the HMAC, and leaves nothing reusable in memory.
        return hashlib.blake2b(secret.encode("utf-8", "surrogatepass"), key=self._salt, digest_size=16).digest()

    async def _ask(self, hashes: Sequence[bytes]) -> dict[bytes, KeyRecord | Refusal] | None:
        if self._pool is None:
            return None
        answers: dict[bytes, KeyRecord | Refusal] | None = None
        try:
            # The timeout is part of the guarantee, because a later answer may describe a key revoked since.
            async with asyncio.timeout(self._config.lookup_timeout_s), borrow(self._pool) as connection:
                answers = await read_keys(connection, hashes)
        except FAILURES as error:
            if self._reachable:
                _log.warning("keys cannot be looked up: %r", error)
        self._reachable = answers is not None
        return answers

    def _joined(self) -> None:
        self._changed_all()
        for callback in self._also:
            callback()

    def _changed(self, payload: str) -> None:
        """Remove the announced key from memory, and distrust lookups that may have read it before.

        An unknown payload counts as all keys, because another release may have sent it.
        """
        if payload.startswith(TENANTS):
            self._cache.drop_tenant(payload)
        else:
            try:
                self._cache.drop(bytes.fromhex(payload))
            except ValueError:
                self._changed_all()
                return
        self._lookups.changed(payload)

    def _changed_all(self) -> None:
        self._cache.clear()
        self._lookups.changed(ALL)

    async def _write_last_used(self) -> None:
        if self._pool is not None:
            with contextlib.suppress(*FAILURES):
                await self._last_used.write(self._pool)


def _without_payload(callback: Callable[[], None]) -> Callable[[str], None]:
    return lambda _payload: callback()


def _refused(refusal: Refusal, secret: str) -> AuthError:
    error: AuthError
    match refusal.reason:
        case Reason.UNKNOWN:
            error = InvalidKey(keys.unknown(secret))
        case Reason.REVOKED:
            error = RevokedKey("This API key has been revoked.")
        case Reason.PROJECT_DISABLED:
            error = TenantDisabled("The project of this API key is disabled; an administrator can enable it again.")
        case Reason.ORGANIZATION_DISABLED:
            error = TenantDisabled("The organization of this API key is disabled; contact the deployment's operator.")
    error.caller = refusal.caller
    return error
