"""What a run asks, as a desired state says: the model, the pool that answers, and its engines' name for it."""

from __future__ import annotations

import msgspec

from contracts.desired_state import DesiredState
from contracts.errors import InvalidField
from contracts.generation import Tier


class Asked(msgspec.Struct, frozen=True):
    """A model on a pool. engine_model: what the pool's engines call it."""

    model: str
    pool: str
    engine_model: str


def asked(state: DesiredState, model_name: str, pool_name: str | None, field: str = "pool") -> Asked:
    """What is asked. pool_name: None: the model's own; field: where it was given, for errors.

    Raises InvalidField, which says what there is, where nothing can be asked.
    """
    model = state.model(model_name)
    if model is None:
        names = ", ".join(one.name for one in state.models) or "none"
        raise InvalidField(f"There is no model {model_name!r}; models: {names}.", param="model")
    if model.tier is not Tier.CHAT:
        tier = model.tier.value
        raise InvalidField(
            f"The model {model_name!r} is of the tier {tier}, and slices are conversations.", param="model"
        )
    pool = pool_name or model.pool
    if state.pool(pool) is None:
        names = ", ".join(one.name for one in state.pools) or "none"
        raise InvalidField(f"There is no pool {pool!r}; pools: {names}.", param=field)
    engine_model = model.engine_model or model.name
    if model.canary is not None and pool == model.canary.pool:
        engine_model = model.canary.engine_model or engine_model
    if model.cascade is not None and pool != model.pool:
        first = state.model(model.cascade.first)
        if first is not None and pool == first.pool:  # which stands for the cascade
            engine_model = first.engine_model or first.name
    return Asked(model.name, pool, engine_model)
