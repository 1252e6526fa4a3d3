"""Passwords: their rules and their storage: argon2id (RFC 9106) of an HMAC with the deployment's pepper, so that
passwords in a stolen table alone cannot be guessed."""

from __future__ import annotations

import asyncio
import base64
import hmac
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from contracts.errors import InvalidField, ServiceError
from control.api.fair_queue import QueueKey
from control.console.hash_queue import HashQueue

MIN_CHARACTERS = 12
MEMORY_KIB = 47_104
PASSES = 2
"""OWASP's cheat sheet on storing passwords recommends one with so much memory and one lane."""
LANES = 1
THREADS = 2
"""Each takes that memory, and a core for less than a tenth of a second."""
NOBODYS = "a password that nobody has"

ResultT = TypeVar("ResultT")


def check(password: str, param: str, *known: str) -> None:
    """The rules: long enough, and not one of the usual first guesses. known: the person's address and name.

    Raises InvalidField. No rule says which characters: those make passwords that people write down (NIST SP 800-63B).
    """
    text = unicodedata.normalize("NFKC", password)
    if len(text) < MIN_CHARACTERS:
        raise InvalidField(
            f"Invalid value for '{param}': it has {len(text)} characters and needs {MIN_CHARACTERS}; a few words in "
            "a row are easy to remember.",
            param=param,
        )
    if len(set(text.casefold())) < 5 or text.casefold() in {each.casefold() for each in known}:
        raise InvalidField(
            f"Invalid value for '{param}': it is easy to guess; choose a few unrelated words.",
            param=param,
        )


class Passwords:
    """Makes and verifies hashes, on threads of its own: a flood of attempts takes no more than these."""

    def __init__(self, pepper: bytes) -> None:
        self._pepper = pepper
        self._hasher = PasswordHasher(time_cost=PASSES, memory_cost=MEMORY_KIB, parallelism=LANES)
        self._threads: ThreadPoolExecutor | None = None
        self._nobodys = ""
        self.queue = HashQueue(THREADS)

    def start(self) -> None:
        """Make the threads."""
        self._threads = ThreadPoolExecutor(THREADS, "console-passwords")

    def stop(self) -> None:
        """Running hashes end by themselves. Idempotent."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None
            self.queue.close()

    async def hash(self, password: str, key: QueueKey) -> str:
        """Hash a password to store it. key: in the queue. Raises QueueFull, or ServiceError at the process's end."""
        return await self._on_thread(lambda: self._hasher.hash(self._keyed(password)), key)

    async def fits(self, stored: str | None, password: str, key: QueueKey) -> bool:
        """Whether the password matches this hash; None: an unknown account, which takes as long. Raises like `hash`."""
        if stored is None and not self._nobodys:
            self._nobodys = await self.hash(NOBODYS, key)
        against = stored or self._nobodys
        return await self._on_thread(lambda: self._verified(against, password), key) and stored is not None

    def outdated(self, stored: str) -> bool:
        """Whether the hash was made with weaker parameters than the present ones."""
        return self._hasher.check_needs_rehash(stored)

    def _verified(self, stored: str, password: str) -> bool:
        try:
            return self._hasher.verify(stored, self._keyed(password))
        except (VerificationError, InvalidHashError):
            return False

    def _keyed(self, password: str) -> str:
        text = unicodedata.normalize("NFKC", password).encode("utf-8", "surrogatepass")
        return base64.b64encode(hmac.digest(self._pepper, b"console password:" + text, "sha256")).decode()

    async def _on_thread(self, work: Callable[[], ResultT], key: QueueKey) -> ResultT:
        await self.queue.acquire(key)
        if self._threads is None:
            self.queue.release()
            raise ServiceError("This instance is shutting down; try again.", retry_after_s=1)
        running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        running.add_done_callback(lambda _: self.queue.release())
        return await asyncio.shield(running)  # the thread continues after a cancellation
