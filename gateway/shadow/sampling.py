"""Chooses the sessions to copy, by a keyed hash that is the same at every gateway and that tenants cannot compute.

A tenant names its sessions. If it knew which are copied, it could choose the requests by which a candidate is judged.
"""

from __future__ import annotations

import hashlib

_PLACES = 2**64


class ShadowSampler:
    """Samples sessions. secret: the deployment's."""

    def __init__(self, secret: bytes) -> None:
        self._key = hashlib.blake2b(secret, digest_size=32, person=b"shadow").digest()

    def unit(self, session_unit: int) -> int:
        """A session as an anonymous number from 1 to 2^63 - 1, by which sums over pairs count it once. session_unit:
        see `contracts.split.unit_of`."""
        return self._digest(f"unit\n{session_unit}") >> 1 or 1

    def samples(self, share: float, model: str, release: str, unit: int) -> bool:
        """Whether the session's requests are copied. A growing share only adds sessions; each release has its own."""
        return self._digest(f"place\n{model}\n{release}\n{unit}") < share * _PLACES

    def cache_salt(self, salt: str) -> str:
        """Salt of copies: they share an engine's prefix cache only with copies of the same organization, so that a
        later request to the candidate is not faster because of them."""
        return f"{self._digest(f'salt{salt}'):016x}{self._digest(f'more salt{salt}'):016x}"

    def _digest(self, text: str) -> int:
        encoded = text.encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.blake2b(encoded, digest_size=8, key=self._key).digest(), "big")
