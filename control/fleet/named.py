"""A model or a pool of the fleet that a request names, or the error that says which there are. Pure."""

from __future__ import annotations

from contracts.desired_state import DesiredState, Model, Pool
from contracts.errors import InvalidField


def model_named(state: DesiredState, name: str, param: str = "model") -> Model:
    """The model of this name or alias. param: the field that names it. Raises InvalidField."""
    if (model := state.model(name)) is None:
        raise InvalidField(f"There is no model {name!r}; models: {_names(state.models)}.", param=param)
    return model


def pool_named(state: DesiredState, name: str, param: str = "pool") -> Pool:
    """param: the field that names it. Raises InvalidField."""
    if (pool := state.pool(name)) is None:
        raise InvalidField(f"There is no pool {name!r}; pools: {_names(state.pools)}.", param=param)
    return pool


def _names(those: tuple[Model, ...] | tuple[Pool, ...]) -> str:
    return ", ".join(each.name for each in those) or "none"
