"""Computes a session's side in a model's split, by which the router places requests and the gateway measures them.

    0 ........ share ..................... 1 - share ........ 1
    [candidate][          baseline          ][    control     ]

A session's position on that line is fixed for a release: a growing share only adds sessions to either arm. It is a
keyed hash, because tenants name their sessions themselves: a tenant that could compute positions would choose the
candidate's sessions.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum

import xxhash

from contracts.desired_state import Canary, Model

_PLACES = 2**64


class Side(StrEnum):
    """A side of a split."""

    BASELINE = "baseline"
    CONTROL = "control"
    """Served like the baseline, from caches as fresh as the candidate's, so that the two can be compared."""
    CANDIDATE = "candidate"


def unit_of(organization_id: str, session: str) -> int:
    """A session's 63-bit number, never 0. The session stays on one side, and counts once when sides are compared.

    session: the client's name for one of the organization's conversations, or the digest of its beginning.
    """
    return xxhash.xxh3_64_intdigest(f"{organization_id}\n{session}".encode("utf-8", "surrogatepass")) >> 1 or 1


def side_of(model: Model, unit: int) -> Side:
    """The side of a session, by its unit. Each release shuffles the sessions, so that different customers try it. The
    shuffle depends on a secret (`Canary.salt`), so that outsiders cannot predict it."""
    canary = model.canary
    if canary is None:
        return Side.BASELINE
    session = f"{model.name}\n{canary.release}\n{unit}".encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(session, digest_size=8, key=canary.salt.encode(), person=b"split")
    place = int.from_bytes(digest.digest(), "big")
    if place < canary.share * _PLACES:
        return Side.CANDIDATE
    if canary.control and place >= (1 - canary.share) * _PLACES:
        return Side.CONTROL
    return Side.BASELINE


def pool_of(model: Model, side: Side) -> str:
    """The name of the pool that serves a side."""
    canary = model.canary
    if canary is None or side is Side.BASELINE:
        return model.pool
    return canary.pool if side is Side.CANDIDATE else canary.control_pool or model.pool


def shares_caches(model: Model, canary: Canary) -> bool:
    """Whether the control arm runs on the baseline's engines, where only a salt of its own separates the caches."""
    return canary.control_pool in ("", model.pool)
