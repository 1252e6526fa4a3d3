"""The routers that can be simulated, by name: Slipstream's core with any policy, and reimplemented rules of others."""

from __future__ import annotations

from collections.abc import Callable

from contracts.errors import ConfigError
from router.config import RouterConfig
from router.core.dispatcher import Dispatcher
from router.core.policy import Policy
from router.policies.registry import create
from tools.simulator.baselines.dynamo_cost import DynamoCost, DynamoRejecting
from tools.simulator.baselines.inside import MostCached, SmgInside
from tools.simulator.baselines.llm_d import LlmD
from tools.simulator.baselines.plain import PlainConsistentHash, PlainLeastLoad, PlainRoundRobin
from tools.simulator.baselines.rule import Rule, RuleRouter
from tools.simulator.baselines.smg_cache_aware import SmgCacheAware, SmgCapped, SmgKvEvents
from tools.simulator.config import SimulatorConfig
from tools.simulator.under_test import RouterUnderTest

OURS = "ours"
INSIDE = "core:"


def rules() -> dict[str, Callable[[], Rule]]:
    """Routers without a queue, by name."""
    return {
        "round_robin": PlainRoundRobin,
        "least_load": PlainLeastLoad,
        "consistent_hash": PlainConsistentHash,
        "smg": SmgCacheAware,
        "smg_events": SmgKvEvents,
        "dynamo": DynamoCost,
        "llm_d": LlmD,
    }


def competitor(name: str, config: SimulatorConfig) -> RouterUnderTest:
    """A new router: `ours`, one of `rules`, `smg:N` and `dynamo:N` for these with their documented limits on, or
    `core:POLICY` for Slipstream's core with another policy, its own or one of baselines/inside.py.

    Raises ConfigError for an unknown name.
    """
    if name == OURS or name.startswith(INSIDE):
        settings = RouterConfig(poll_interval_s=config.poll_interval_s)
        return Dispatcher(settings, _policy(settings.policy if name == OURS else name.removeprefix(INSIDE), config))
    rule, colon, limit = name.partition(":")
    if colon and limit.isdecimal() and int(limit):
        if rule == "smg":
            return _router(SmgCapped(int(limit) * config.replicas), config)
        if rule == "dynamo":
            return _router(DynamoRejecting(int(limit)), config)
    factory = rules().get(name)
    if factory is not None:
        return _router(factory(), config)
    known = ", ".join([OURS, *rules(), "smg:PLACES_PER_ENGINE", "dynamo:PREFILL_TOKENS", "core:POLICY"])
    raise ConfigError(f"no router named {name!r}; known: {known}", param="policy")


def _router(rule: Rule, config: SimulatorConfig) -> RuleRouter:
    return RuleRouter(rule, config.seed, config.limits.block_tokens)


def _policy(name: str, config: SimulatorConfig) -> Policy:
    if name == SmgInside.name:
        return SmgInside(config.limits.block_tokens)
    return MostCached() if name == MostCached.name else create(name)
