"""Passwords whose hashes cost next to nothing, and a gateway that has them, which is started as `slipstream` is:
`python -m tests.control.console.quick_passwords gateway …`. The product's own are test_passwords.py's."""

from __future__ import annotations

from argon2 import PasswordHasher

import control.console.console
import gateway.main
from control.api.fair_queue import QueueKey
from control.console.hash_queue import QueueFull
from control.console.passwords import Passwords
from slipstream.__main__ import main
from tests.control.api.at_once import ready_but_for_the_router

UNHEARD = "words that find all places taken"
"""Whoever signs in by it comes when too many wait."""


class QuickPasswords(Passwords):
    def __init__(self, pepper: bytes) -> None:
        super().__init__(pepper)
        self._hasher = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)

    async def fits(self, stored: str | None, password: str, key: QueueKey) -> bool:
        if password == UNHEARD:
            raise QueueFull
        return await super().fits(stored, password, key)


if __name__ == "__main__":
    gateway.main._ready = ready_but_for_the_router
    control.console.console.Passwords = QuickPasswords  # type: ignore[attr-defined]
    main()
