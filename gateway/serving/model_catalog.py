"""Holds the models that the gateway serves: the desired state with drivers and loaded tokenizers.

A new version is loaded next to the old one and replaces it as a whole, so that a request never sees a mixture.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from contracts.adapter import SEPARATOR, Adapter
from contracts.cascade_digest import approved
from contracts.desired_state import DesiredState, KvObjective, Model
from contracts.errors import ConfigError, InvalidField, ModelNotFound
from contracts.fill_in_the_middle import Healing
from contracts.generation import Tier
from contracts.lease import Engine
from contracts.misfit import shortened
from contracts.pooling import Task
from engines.drivers import registry as drivers
from engines.drivers.base import Capabilities, Driver, strictest
from engines.tokenizer.config import TokenizingConfig
from engines.tokenizer.fair_executor import FairExecutor
from engines.tokenizer.json_value import JsonBounds
from engines.tokenizer.off_loop import OffLoopTokenizer
from engines.tokenizer.tokenizer import Tokenizer
from gateway.desired.pool_options import check_adapters
from gateway.observability.cascade_metrics import CascadeMetrics
from gateway.wire.fill.healing import healing_of
from gateway.wire.prepared import Target

logger = logging.getLogger(__name__)
MayUse = Callable[[Model], bool]
"""Whether a caller has access to a model."""


class ModelCatalog:
    """Finds the model that a name means, with its tokenizer. Owns the tokenizing threads of all models."""

    def __init__(
        self,
        tokenizing: TokenizingConfig | None = None,
        bounds: JsonBounds | None = None,
        cascade_metrics: CascadeMetrics | None = None,
    ) -> None:
        """bounds: the bounds of a conversation's JSON. None for the defaults."""
        self._bounds = bounds
        self._executor = FairExecutor(tokenizing)
        self._targets: dict[str, Target] = {}
        self._tokenizers: dict[str, OffLoopTokenizer] = {}
        self._drivers: dict[tuple[str, str], Driver] = {}
        """Drivers by pool and driver name."""
        self._kv_objectives: dict[str, KvObjective] = {}
        self._unsalted: frozenset[str] = frozenset()
        """Pools with a logged warning, which the stored state, loaded after the settings' state, must not repeat."""
        self._approved: frozenset[str] = frozenset()
        """Models whose cascades may answer customers."""
        self._warned: frozenset[str] = frozenset()
        self._cascade_metrics = cascade_metrics
        self.models: tuple[Model, ...] = ()
        self.known_since: dict[str, int] = {}
        """Unix time in seconds at which this gateway first loaded each model."""
        self.adapted_models: frozenset[str] = frozenset()
        """Models for which some engines accept LoRA adapters."""
        self.version = 0

    async def load(self, state: DesiredState) -> None:
        """Load a version. Raises ConfigError if a tokenizer or driver cannot be loaded; the old version then stays."""
        by_pool = {pool.name: drivers.of_pool(pool) for pool in state.pools}
        for pool in state.pools:
            check_adapters(pool)
        targets: dict[str, Target] = {}
        tokenizers: dict[str, OffLoopTokenizer] = {}
        for model in state.models:
            capabilities = _capabilities(model, by_pool)
            tokenizer = None
            if model.tokenizer is not None:
                tokenizer = self._tokenizers.get(model.tokenizer) or tokenizers.get(model.tokenizer)
                if tokenizer is None:
                    try:
                        loaded = await asyncio.to_thread(Tokenizer.load, Path(model.tokenizer), self._bounds)
                    except ConfigError as error:
                        field = f"models.{model.name}.tokenizer"
                        raise ConfigError(f"{field}: {error.message}", param=field) from None
                    tokenizer = OffLoopTokenizer(loaded, self._executor)
                tokenizers[model.tokenizer] = tokenizer
            target = Target(model, capabilities, tokenizer)
            for name in (model.name, *model.aliases):
                targets[name] = target
        unsalted = frozenset(name for name, driver in by_pool.items() if not driver.capabilities.salted_cache)
        for name in sorted(unsalted - self._unsalted):
            logger.warning(
                "pools.%s: the engines may share prefix caches between tenants, so cached tokens are neither "
                "reported nor cheaper; if the engines separate caches by `cache_salt` (vLLM), set cache_salt = true",
                name,
            )
        self._unsalted = unsalted
        self._drivers = {(name, driver.name): driver for name, driver in by_pool.items()}
        self._kv_objectives = {pool.name: pool.kv_objective for pool in state.pools}
        self._targets, self._tokenizers = targets, tokenizers
        self._approve(state)
        now_s, known = int(time.time()), self.known_since
        self.known_since = {model.name: known.get(model.name, now_s) for model in state.models}
        self.models, self.version = state.models, state.version
        self.adapted_models = state.adapted_models

    def _approve(self, state: DesiredState) -> None:
        """Find the cascades whose current form has passed a comparison."""
        models = {model.name: model.cascade for model in state.models if model.cascade is not None}
        self._approved = frozenset(model.name for model in state.models if approved(state, model))
        stale = frozenset(name for name, cascade in models.items() if cascade.approval is not None) - self._approved
        for name in sorted(stale - self._warned):
            logger.warning(
                "models.%s.cascade: the compared models have changed since, so the large model answers every request; "
                "compare again, and approve it with `slipstream fleet models cascade`",
                name,
            )
        self._warned = stale
        if self._cascade_metrics is not None:
            self._cascade_metrics.approvals(
                {
                    name: cascade.approval.worst_difference if name in self._approved and cascade.approval else None
                    for name, cascade in models.items()
                }
            )

    def healing(self, model: Model) -> Healing | None:
        """How the model's gaps are healed; None if they are not."""
        target = self._targets.get(model.name)
        return None if target is None else healing_of(target)

    def first_of(self, target: Target) -> Target | None:
        """The small model of the target's cascade; None if it has no cascade, or the request names an adapter."""
        cascade = target.model.cascade
        return None if cascade is None or target.adapter is not None else self._targets.get(cascade.first)

    def approved(self, target: Target) -> bool:
        """Whether customers may get responses of the target's cascade."""
        return target.model.name in self._approved

    def close(self) -> None:
        """Stop the tokenizers' threads; prompts that wait for one are refused."""
        self._executor.close()

    def driver(self, engine: Engine) -> Driver:
        """The driver of a granted engine, with its pool's options. The router may know a newer state or a removed pool;
        its engine is then driven without options. Raises ConfigError for an unknown driver."""
        return self._drivers.get((engine.pool, engine.driver)) or drivers.get(engine.driver)

    def kv_objective(self, pool_name: str) -> KvObjective:
        """A pool's objective; the default for a pool unknown to this state."""
        return self._kv_objectives.get(pool_name, KvObjective())

    def find(
        self,
        name: str,
        may_use: MayUse,
        adapters: Sequence[Adapter] = (),
        task: Task | None = None,
        tier: Tier | None = None,
    ) -> Target:
        """name: a model's name, or `model:adapter`; "" for the caller's first model of the autocomplete tier. adapters:
        the caller's. task, tier: those of the endpoint, whose models an error names. Raises ModelNotFound with the
        caller's models, also for an adapter that none of the model's engines accepts."""
        if not name:
            return self._for_editors(may_use)
        target = self._targets.get(name) or self._adapted(name, adapters)
        if target is None:
            name = shortened(name)
            names = self.names(may_use, task, tier) or self.names(may_use, task)
            near = difflib.get_close_matches(name, names, 1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            available = ", ".join(names) or ("none yet" if task is None else "none for this endpoint yet")
            raise ModelNotFound(f"The model '{name}' does not exist.{hint} Available: {available}.", param="model")
        return target

    def _adapted(self, name: str, adapters: Sequence[Adapter]) -> Target | None:
        model_name, _, adapter_name = name.rpartition(SEPARATOR)
        target = self._targets.get(model_name)
        if target is None:
            return None
        wanted = target.model.name, adapter_name
        adapter = next((one for one in adapters if (one.model, one.name) == wanted), None)
        if adapter is None:
            return None
        if target.model.name not in self.adapted_models:
            raise ModelNotFound(
                f"The adapter '{adapter.public_name}' cannot be used, because the engines of '{adapter.model}' do not "
                f"support adapters. Request '{adapter.model}', or contact the deployment's operator.",
                param="model",
            )
        return msgspec.structs.replace(target, adapter=adapter)

    def on_pool(self, target: Target, pool_name: str) -> Target:
        """The same model on a pool that the request names. Raises InvalidField with the known pools."""
        found = next((driver for (name, _), driver in self._drivers.items() if name == pool_name), None)
        if found is None:
            pools = ", ".join(sorted(name for name, _ in self._drivers)) or "none yet"
            raise InvalidField(
                f"Invalid value for 'x-slipstream-pool': there is no pool '{shortened(pool_name)}'. Pools: {pools}.",
                param="x-slipstream-pool",
            )
        return msgspec.structs.replace(target, capabilities=found.capabilities)

    def _for_editors(self, may_use: MayUse) -> Target:
        """The default model for a client whose API has no model names."""
        for model in self.models:
            if model.tier is Tier.AUTOCOMPLETE and model.task is Task.TEXT and may_use(model):
                return self._targets[model.name]
        available = ", ".join(self.names(may_use)) or "none yet"
        raise ModelNotFound(
            f"No model of the autocomplete tier is available to this key, and the request names none. Name one in "
            f"'model' where the API has that field. Available: {available}.",
            param="model",
        )

    def names(
        self, may_use: MayUse, task: Task | None = None, tier: Tier | None = None, *, chat: bool = False
    ) -> list[str]:
        """Models that this caller may use. task, tier: only models of that task or tier. chat: only models that accept
        conversations, as far as the gateway knows."""
        of_kind = [model for model in self.models if task in (None, model.task) and tier in (None, model.tier)]
        usable = [model for model in of_kind if may_use(model)]
        targets = [self._targets[model.name] for model in usable]
        return [target.model.name for target in targets if not chat or _may_chat(target)]


def _may_chat(target: Target) -> bool:
    if target.model.task is not Task.TEXT:
        return False
    if target.tokenizer is None:
        return target.model.tier is Tier.CHAT
    return target.tokenizer.tokenizer.has_chat_template


def _capabilities(model: Model, by_pool: Mapping[str, Driver]) -> Capabilities:
    """Capabilities that all pools of the model share. Raises ConfigError."""
    driver = by_pool.get(model.pool)
    if driver is None:
        raise ConfigError(f"models.{model.name}.pool: no pool named {model.pool!r}")
    if model.canary is None:
        return driver.capabilities
    found = driver.capabilities
    for field, name in (("pool", model.canary.pool), ("control_pool", model.canary.control_pool or model.pool)):
        other = by_pool.get(name)
        if other is None:
            raise ConfigError(f"models.{model.name}.canary.{field}: no pool named {name!r}")
        found = strictest(found, other.capabilities)
    return found
