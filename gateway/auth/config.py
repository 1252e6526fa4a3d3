"""Settings of key verification."""

from __future__ import annotations

from typing import Annotated

import msgspec

from contracts.fixed import Fixed

Seconds = Annotated[float, msgspec.Meta(gt=0, le=60)]


class AuthConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long a gateway may trust its memory, and how it detects a lost notification channel."""

    cached_keys: Fixed[Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]] = 10_000
    """Keys kept in memory, least recently used first to go."""
    cached_refusals: Fixed[Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]] = 10_000
    """Unknown and revoked keys kept in memory, so that a client that insists does not reach the database."""
    trust_s: Seconds = 1.0
    """How long memory is believed after the last proof that a revocation would have been heard. This, or
    `lookup_timeout_s` if that is longer, is the longest time for which a revoked key can still be accepted."""
    heartbeat_s: Fixed[Seconds] = 0.25
    """Time between two such proofs; shorter than `trust_s`."""
    heartbeat_timeout_s: Fixed[Seconds] = 2.0
    """Longest wait for a proof; after it the connection is closed and a new one opened."""
    lookup_timeout_s: Seconds = 1.0
    """Longest wait for the database about one key, in line and for the answer; after it the request is refused with
    503."""
    connections: Fixed[Annotated[int, msgspec.Meta(ge=1, le=100)]] = 4
    """Database connections for looking up keys, besides the one that listens."""
    lookup_batch_keys: Fixed[Annotated[int, msgspec.Meta(ge=1, le=10_000)]] = 500
    """Keys in one database lookup. A flood of invented keys costs one lookup per batch, and a valid key waits for few
    of them."""
    last_used_every_s: Fixed[Annotated[float, msgspec.Meta(ge=1, le=86_400)]] = 60.0
    """Shortest interval between two writes of a key's `last_used_at`."""
