"""What the fleet should be: models, pools and replicas, as one versioned document.

Stored as a row per version, seeded from the settings file, handed by gateways to the router, which keeps the highest.
"""

from __future__ import annotations

import msgspec

from contracts.errors import ConfigError
from contracts.generation import Tier


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A model as clients see it."""

    name: str
    tier: Tier
    pool: str
    """The pool whose replicas serve it."""
    context_tokens: int
    aliases: tuple[str, ...] = ()
    """Other names clients may use."""
    tokenizer: str | None = None
    """Folder with tokenizer.json (and a chat template), so that prompts are counted and encoded exactly. Without it
    counts are estimates, fill-in-the-middle goes as text, and both are said in `docs`."""
    engine_model: str | None = None
    """The name the engines serve it under, when it differs from `name`."""
    default_max_tokens: int = 512
    """Output limit when the client gives none; always cut to what the context leaves."""


class Replica(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One engine process (or one load-balanced address)."""

    id: str
    url: str
    weight: float = 1.0
    """Share of load relative to the pool's other replicas; 0 drains it."""


class Pool(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Interchangeable replicas that speak one dialect."""

    name: str
    driver: str
    replicas: tuple[Replica, ...] = ()
    max_concurrency: int = 64
    """Leases per replica before the router queues."""


class DesiredState(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One version of the whole."""

    version: int
    models: tuple[Model, ...] = ()
    pools: tuple[Pool, ...] = ()

    def model(self, name: str) -> Model | None:
        """The model with this name or alias, or None."""
        for model in self.models:
            if name == model.name or name in model.aliases:
                return model
        return None

    def pool(self, name: str) -> Pool | None:
        """The pool with this name, or None."""
        for pool in self.pools:
            if pool.name == name:
                return pool
        return None

    def check(self) -> None:
        """Raise ConfigError when names clash or point nowhere."""
        _require_unique("models", [n for model in self.models for n in (model.name, *model.aliases)])
        _require_unique("pools", [pool.name for pool in self.pools])
        _require_unique("replicas", [replica.id for pool in self.pools for replica in pool.replicas])
        for model in self.models:
            if self.pool(model.pool) is None:
                known = ", ".join(pool.name for pool in self.pools) or "none"
                raise ConfigError(f"models.{model.name}.pool: no pool named {model.pool!r}; pools: {known}")


def _require_unique(what: str, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ConfigError(f"{what}: the name {name!r} is used twice; names and aliases must be unique")
        seen.add(name)
