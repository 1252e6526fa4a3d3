"""What a run asks, as the newest desired state says: the model, the pool that answers, and its engines' name for it."""

from __future__ import annotations

from typing import Any, TypeAlias

import asyncpg
import msgspec

from contracts.desired_state import DesiredState
from contracts.generation import Tier
from gateway.desired import document
from gateway.desired.store import NEWEST

Connection: TypeAlias = "asyncpg.Connection[Any]"


class Asked(msgspec.Struct, frozen=True):
    """A model on a pool. engine_model: what the pool's engines call it."""

    model: str
    pool: str
    engine_model: str


async def newest_state(connection: Connection) -> DesiredState:
    """Empty before there is one. Raises ConfigError for one that this release cannot read."""
    row = await connection.fetchrow(NEWEST, 0)
    return DesiredState(version=0) if row is None else document.decode(row[0], row[1])


def no_pool(state: DesiredState, name: str) -> str | None:
    """The sentence that says that there is none of this name; None: there is."""
    if state.pool(name) is not None:
        return None
    return f"there is no pool {name!r}; pools: {', '.join(one.name for one in state.pools) or 'none'}"


def asked(state: DesiredState, model_name: str, pool_name: str | None) -> Asked | str:
    """What is asked; or the sentence that says why nothing can be."""
    model = state.model(model_name)
    if model is None:
        names = ", ".join(one.name for one in state.models) or "none"
        return f"there is no model {model_name!r}; models: {names}"
    if model.tier is not Tier.CHAT:
        return f"the model {model_name!r} is of the tier {model.tier.value}, and slices are conversations"
    pool = pool_name or model.pool
    if (missing := no_pool(state, pool)) is not None:
        return missing
    engine_model = model.engine_model or model.name
    if model.canary is not None and pool == model.canary.pool:
        engine_model = model.canary.engine_model or engine_model
    if model.cascade is not None and pool != model.pool:
        first = state.model(model.cascade.first)
        if first is not None and pool == first.pool:  # which stands for the cascade
            engine_model = first.engine_model or first.name
    return Asked(model.name, pool, engine_model)
