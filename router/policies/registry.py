"""The policies by name."""

from __future__ import annotations

from collections.abc import Callable

from contracts.errors import ConfigError
from router.policies.base import Policy
from router.policies.consistent_hash import ConsistentHash
from router.policies.least_load import LeastLoad
from router.policies.prefix import Prefix
from router.policies.round_robin import RoundRobin


def create(name: str) -> Policy:
    """A fresh policy of this name. Raises ConfigError when there is none."""
    known: dict[str, Callable[[], Policy]] = {
        "least_load": LeastLoad,
        "prefix": Prefix,
        "consistent_hash": ConsistentHash,
        "round_robin": RoundRobin,
    }
    if name not in known:
        raise ConfigError(f"router.policy: no policy named {name!r}; known: {', '.join(known)}", param="router.policy")
    return known[name]()
