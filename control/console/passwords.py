"""The rules and the hashes of passwords: argon2id (RFC 9106) of an HMAC with the deployment's pepper, so that passwords
cannot be guessed from a stolen table alone."""

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
"""OWASP's cheat sheet on storing passwords recommends one pass with this much memory and one lane."""
LANES = 1
THREADS = 2
"""A hash takes `MEMORY_KIB`, and a core for less than a tenth of a second."""
NOBODYS = "a password that nobody has"

ResultT = TypeVar("ResultT")


def check(password: str, param: str, *known: str) -> None:
    """Require a password that is long enough and none of the usual first guesses. known: the person's address and name.

    Raises InvalidField. No rule requires certain characters: people write such passwords down (NIST SP 800-63B).
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
    """Creates and verifies hashes on threads of its own, so a flood of attempts occupies no others."""

    def __init__(self, pepper: bytes) -> None:
        self._pepper = pepper
        self._hasher = PasswordHasher(time_cost=PASSES, memory_cost=MEMORY_KIB, parallelism=LANES)
        self._threads: ThreadPoolExecutor | None = None
        self._dummy_hash = ""
        self.queue = HashQueue(THREADS)

    def start(self) -> None:
        """Start the threads."""
        self._threads = ThreadPoolExecutor(THREADS, "console-passwords")

    def stop(self) -> None:
        """Stop the threads after the hashes that were granted one. Idempotent."""
        if self._threads is not None:
            # not cancel_futures: a thread may not have begun its hash yet, whose attempt would end without an answer
            self._threads.shutdown(wait=False)
            self._threads = None
            self.queue.close()

    async def hash(self, password: str, key: QueueKey) -> str:
        """Hash a password to store it. key: the queue's. Raises QueueFull, or ServiceError when the process stops."""
        return await self._on_thread(lambda: self._hasher.hash(self._keyed(password)), key)

    async def fits(self, stored: str | None, password: str, key: QueueKey) -> bool:
        """Whether the password matches this hash; None for an unknown account takes as long. Raises like `hash`."""
        if stored is None and not self._dummy_hash:
            self._dummy_hash = await self.hash(NOBODYS, key)
        reference = stored or self._dummy_hash
        return await self._on_thread(lambda: self._verified(reference, password), key) and stored is not None

    def outdated(self, stored: str) -> bool:
        """Whether the hash has weaker parameters than the current ones."""
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
