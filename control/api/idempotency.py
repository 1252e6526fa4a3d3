"""Idempotency-Key on POSTs, by Stripe's rules: the first answer is kept, and returned to each repetition.

The transaction that does the work also keeps the answer, so that neither exists without the other. A run that dies
leaves its key taken. After `RUN`, the next request takes the key over, and the earlier run can no longer commit.
Answers with status 5xx are not kept, nor are refusals before the work began (401, 403, a body that does not decode).
"""

from __future__ import annotations

import hmac
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import msgspec

from contracts.errors import IdempotencyInFlight, IdempotencyMismatch, InvalidField
from control.api.sealed import seal, unseal

KEY_CHARACTERS = 255
KEPT = timedelta(hours=24)
RUN = timedelta(seconds=60)

# A key may be claimed again after it has expired, or when its run must have died.
CLAIM = """
INSERT INTO gateway.idempotency_keys AS kept (principal_id, key, fingerprint, run_id) VALUES ($1, $2, $3, $4)
    ON CONFLICT (principal_id, key) DO UPDATE
   SET fingerprint = excluded.fingerprint, run_id = excluded.run_id, started_at = now(), status = NULL, answer = NULL
 WHERE kept.started_at < now() - $5::interval
    OR (kept.status IS NULL AND kept.started_at < now() - $6::interval
        AND kept.fingerprint = excluded.fingerprint)
RETURNING true
"""
FIND = "SELECT fingerprint, status, answer FROM gateway.idempotency_keys WHERE principal_id = $1 AND key = $2"
KEEP = """
UPDATE gateway.idempotency_keys SET status = $4, answer = $5 WHERE principal_id = $1 AND key = $2 AND run_id = $3
"""
RELEASE = "DELETE FROM gateway.idempotency_keys WHERE principal_id = $1 AND key = $2 AND run_id = $3"
FORGET = "DELETE FROM gateway.idempotency_keys WHERE started_at < now() - $1::interval"


class Kept(msgspec.Struct, frozen=True):
    """The kept answer to an earlier request."""

    status: int
    body: bytes


class Idempotency:
    """One request's claim on its key. pepper: seals the kept responses, because some contain a secret that is shown
    once."""

    def __init__(self, principal_id: UUID, key: str, pepper: bytes, request: tuple[str, str, bytes]) -> None:
        self._principal_id = principal_id
        self._key = key
        self._pepper = pepper
        self._run_id = uuid4()
        digest = hmac.new(pepper, digestmod="sha256")
        for part in (request[0].encode(), request[1].encode(), request[2]):
            digest.update(b"%d:" % len(part) + part)
        self._fingerprint = digest.digest()

    @staticmethod
    def check(key: str) -> str:
        """Return the header's value. Raises InvalidField if it is malformed."""
        if not 1 <= len(key) <= KEY_CHARACTERS or not key.isascii() or not key.isprintable():
            raise InvalidField(
                f"Idempotency-Key: it must have 1 to {KEY_CHARACTERS} printable ASCII characters; a UUID is usual.",
                param="Idempotency-Key",
            )
        return key

    async def claim(self, connection: asyncpg.Connection[Any]) -> Kept | None:
        """Take the key for this run (None), or return the kept answer. Not in a transaction, so that others see it.

        Raises IdempotencyMismatch for another request with the same key, IdempotencyInFlight while the first one runs.
        """
        run = (self._principal_id, self._key, self._fingerprint, self._run_id)
        if await connection.fetchval(CLAIM, *run, KEPT, RUN):
            return None
        row = await connection.fetchrow(FIND, self._principal_id, self._key)
        if row is None or (row["status"] is None and hmac.compare_digest(row["fingerprint"], self._fingerprint)):
            raise IdempotencyInFlight(
                "The first request with this Idempotency-Key is still running; retry for its response.",
                retry_after_s=1,
            )
        if not hmac.compare_digest(row["fingerprint"], self._fingerprint):
            raise IdempotencyMismatch(
                "This Idempotency-Key was used for another request (method, URL or body differ); use a new one.",
                param="Idempotency-Key",
            )
        return Kept(row["status"], unseal(self._pepper, self._use, row["answer"]))

    async def keep(self, connection: asyncpg.Connection[Any], status: int, body: bytes) -> None:
        """Keep the answer, in the transaction of the work. Raises IdempotencyInFlight if another run has taken the key,
        so that the work is rolled back."""
        answer = seal(self._pepper, self._use, body)
        done = await connection.execute(KEEP, self._principal_id, self._key, self._run_id, status, answer)
        if done != "UPDATE 1":
            raise IdempotencyInFlight("Another request took over this Idempotency-Key.", retry_after_s=1)

    async def release(self, connection: asyncpg.Connection[Any]) -> None:
        """Free the key after a failure of the server, so that a retry can use it."""
        await connection.execute(RELEASE, self._principal_id, self._key, self._run_id)

    @property
    def _use(self) -> str:
        return f"idempotency:{self._principal_id}:{self._key}"
