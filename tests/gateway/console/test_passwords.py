"""Hashes of passwords: what one costs, and how many wait for theirs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from contracts.errors import ServiceError
from gateway.console.passwords import MOST_WAITING, Passwords
from tests.gateway.console.quick_passwords import QuickPasswords

WORDS = "four words in a row"


@pytest.fixture
def passwords() -> Iterator[Passwords]:
    made = Passwords(b"pepper")
    made.start()
    yield made
    made.stop()


async def test_a_hash_costs_what_a_guess_shall_cost(passwords: Passwords) -> None:
    """OWASP's least: 46 MiB and one pass; here two."""
    stored = await passwords.hash(WORDS)
    assert stored.startswith("$argon2id$v=19$m=47104,t=2,p=1$")
    assert await passwords.fits(stored, WORDS)
    assert not await passwords.fits(stored, WORDS + "!")
    assert not await passwords.fits(None, WORDS)
    assert not passwords.outdated(stored)
    assert passwords.outdated(QuickPasswords(b"pepper")._hasher.hash(WORDS))


async def test_whoever_comes_when_too_many_wait_is_asked_to_come_again(passwords: Passwords) -> None:
    going = threading.Event()
    waiting = [asyncio.create_task(passwords._on_thread(going.wait)) for _ in range(MOST_WAITING)]
    await asyncio.sleep(0)
    try:
        with pytest.raises(ServiceError, match="Too many people"):
            await passwords.hash(WORDS)
    finally:
        going.set()
    assert await asyncio.gather(*waiting) == [True] * MOST_WAITING
    assert await passwords._on_thread(lambda: 1) == 1
