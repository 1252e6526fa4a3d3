"""Counts attempts to sign in before they are tried, so that no concurrent attempt slips through an earlier check.

Attempts count by e-mail address, whether an account has it or not, so that a pause reveals nothing; and by network,
against one password that is tried on many addresses. After the first few, each costs a pause twice as long as the
previous one.
"""

from __future__ import annotations

import hmac
from datetime import timedelta
from typing import Any

import asyncpg
import msgspec

from contracts.errors import RateLimited

FORGOTTEN = timedelta(hours=24)
FIRST_PAUSE_S = 10.0
MAX_DOUBLINGS = 20

TAKE = """
INSERT INTO gateway.console_attempts AS known (subject, failures, last_at, locked_until)
VALUES ($1, 1, clock_timestamp(), clock_timestamp())
    ON CONFLICT (subject) DO UPDATE
   SET failures = CASE WHEN known.last_at < clock_timestamp() - $2::interval THEN 1 ELSE known.failures + 1 END,
       last_at = clock_timestamp(),
       locked_until = clock_timestamp() + CASE
           WHEN known.last_at < clock_timestamp() - $2::interval OR known.failures + 1 < $3 THEN interval '0'
           ELSE least($4 * power(2, least(known.failures + 1 - $3, $6)), $5) * interval '1 second' END
 WHERE known.locked_until <= clock_timestamp()
RETURNING true
"""
PAUSE = """
SELECT extract(epoch FROM locked_until - clock_timestamp())::float8 FROM gateway.console_attempts WHERE subject = $1
"""
FORGET = "DELETE FROM gateway.console_attempts WHERE subject = $1"
GIVE_BACK = """
UPDATE gateway.console_attempts
   SET failures = greatest(failures - 1, 0), locked_until = least(locked_until, clock_timestamp()) WHERE subject = $1
"""
SWEEP = "DELETE FROM gateway.console_attempts WHERE last_at < now() - $1::interval"


class Subject(msgspec.Struct, frozen=True):
    """A group of attempts that are counted together. free: number of failures before the first pause."""

    key: bytes
    free: int

    @staticmethod
    def address(pepper: bytes, email: str) -> Subject:
        """An e-mail address, known or not."""
        return Subject(_keyed(pepper, "address", email.lower()), 5)

    @staticmethod
    def network(pepper: bytes, network: str) -> Subject:
        """A network, for all clients that share it."""
        return Subject(_keyed(pepper, "network", network), 25)


async def take(connection: asyncpg.Connection[Any], subjects: list[Subject], longest_s: float) -> None:
    """Count an attempt as failed, for all subjects or, in a pause of one, for none. Call it outside any transaction, so
    that the count stays. Raises RateLimited in a pause."""
    async with connection.transaction():
        for subject in subjects:
            parameters = (FORGOTTEN, subject.free, FIRST_PAUSE_S, longest_s, MAX_DOUBLINGS)
            if not await connection.fetchval(TAKE, subject.key, *parameters):
                pause_s = max(1.0, await connection.fetchval(PAUSE, subject.key) or 0.0)
                raise RateLimited(f"Too many attempts failed. Try again in {pause_s:.0f} s.", retry_after_s=pause_s)


async def succeeded(connection: asyncpg.Connection[Any], address: Subject, network: Subject, *, alone: bool) -> None:
    """Record a success: reset the address's count, and give the network one attempt back.

    alone: whether no other organization has an account with this address. Otherwise only this attempt is given back and
    failures stay: the owner of one account could sign in to it repeatedly and try the other's passwords in between.
    """
    await connection.execute(FORGET if alone else GIVE_BACK, address.key)
    await connection.execute(GIVE_BACK, network.key)


async def given_back(connection: asyncpg.Connection[Any], *subjects: Subject) -> None:
    """Give one attempt back to each count, with the pause that it cost."""
    for subject in subjects:
        await connection.execute(GIVE_BACK, subject.key)


def _keyed(pepper: bytes, kind: str, name: str) -> bytes:
    return hmac.digest(pepper, f"console attempts:{kind}:{name}".encode("utf-8", "replace"), "sha256")
