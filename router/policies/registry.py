"""Creates a placement policy by its name."""

from __future__ import annotations

from contracts.errors import ConfigError
from router.core.policy import Policy
from router.policies.consistent_hash import ConsistentHash
from router.policies.least_load import LeastLoad
from router.policies.prefix import Prefix
from router.policies.round_robin import RoundRobin


def create(name: str) -> Policy:
    """A new policy of this name. Raises ConfigError if there is none."""
    policies: tuple[type[Policy], ...] = (LeastLoad, Prefix, ConsistentHash, RoundRobin)
    known = {policy.name: policy for policy in policies}
    if name not in known:
        raise ConfigError(f"router.policy: no policy named {name!r}; known: {', '.join(known)}", param="router.policy")
    return known[name]()
