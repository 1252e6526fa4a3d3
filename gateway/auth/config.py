"""Settings of key verification."""

from __future__ import annotations

from typing import Annotated

import msgspec

from contracts.fixed import Fixed

Seconds = Annotated[float, msgspec.Meta(gt=0, le=60)]


class AuthConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long a gateway may use cached keys, and how it detects a lost notification channel."""

    cached_keys: Fixed[Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]] = 10_000
    """Maximum number of cached keys. The least recently used keys are evicted first."""
    cached_refusals: Fixed[Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]] = 10_000
    """Maximum number of cached unknown and revoked keys, so that a client that retries does not reach the database."""
    trust_s: Seconds = 1.0
    """How long cached keys are used after the last proof that a revocation would have arrived. A revoked key can be
    accepted for this time, or for `lookup_timeout_s` if that is longer."""
    heartbeat_s: Fixed[Seconds] = 0.25
    """Interval between two such proofs, shorter than `trust_s`."""
    heartbeat_timeout_s: Fixed[Seconds] = 2.0
    """Longest wait for a proof. After it, the connection is closed and replaced."""
    lookup_timeout_s: Seconds = 1.0
    """Longest time for looking up one key in the database, including the wait for a connection. After it, the request
    is refused with 503."""
    connections: Fixed[Annotated[int, msgspec.Meta(ge=1, le=100)]] = 4
    """Database connections for looking up keys, in addition to the one that listens."""
    lookup_batch_keys: Fixed[Annotated[int, msgspec.Meta(ge=1, le=10_000)]] = 500
    """Keys in one database lookup. A flood of invented keys costs one lookup per batch, and a valid key waits for few
    of them."""
    last_used_every_s: Fixed[Annotated[float, msgspec.Meta(ge=1, le=86_400)]] = 60.0
    """Shortest interval between two writes of a key's `last_used_at`."""
