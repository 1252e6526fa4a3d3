"""The routers that can be simulated, by name: our core with one of its policies, and restatements of others' rules."""

from __future__ import annotations

from collections.abc import Callable

from contracts.errors import ConfigError
from router.config import RouterConfig
from router.core.dispatcher import Dispatcher
from router.policies.registry import create
from router.simulator.baselines.dynamo_cost import DynamoCost
from router.simulator.baselines.plain import PlainConsistentHash, PlainLeastLoad, PlainRoundRobin
from router.simulator.baselines.rule import Rule, RuleRouter
from router.simulator.baselines.smg_cache_aware import SmgCacheAware, SmgKvEvents
from router.simulator.config import SimulatorConfig
from router.simulator.under_test import RouterUnderTest

OURS = "ours"
OUR_POLICY = "prefix"


def rules() -> dict[str, Callable[[], Rule]]:
    """Those without a queue, by name."""
    return {
        "round_robin": PlainRoundRobin,
        "least_load": PlainLeastLoad,
        "consistent_hash": PlainConsistentHash,
        "smg": SmgCacheAware,
        "smg_events": SmgKvEvents,
        "dynamo": DynamoCost,
    }


def competitor(name: str, config: SimulatorConfig) -> RouterUnderTest:
    """A fresh router: `ours`, one of `rules`, or `core:POLICY` for our core with another of its policies.

    Raises ConfigError for an unknown name.
    """
    made = rules().get(name)
    if made is not None:
        return RuleRouter(made(), config.seed, config.limits.block_tokens)
    if name == OURS or name.startswith("core:"):
        policy = OUR_POLICY if name == OURS else name.removeprefix("core:")
        settings = RouterConfig(policy=policy, poll_interval_s=config.poll_interval_s)
        return Dispatcher(settings, create(policy))
    known = ", ".join([OURS, *rules(), "core:POLICY"])
    raise ConfigError(f"no router named {name!r}; known: {known}", param="policy")
