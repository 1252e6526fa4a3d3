"""Finds a model or a pool that a request names. The error lists the known names. Pure."""

from __future__ import annotations

from contracts.desired_state import DesiredState, Model, Pool
from contracts.errors import InvalidField


def model_named(state: DesiredState, name: str, param: str = "model") -> Model:
    """The model of this name or alias. param: the field that names it. Raises InvalidField."""
    if (model := state.model(name)) is None:
        raise InvalidField(f"There is no model {name!r}; models: {_names(state.models)}.", param=param)
    return model


def pool_named(state: DesiredState, name: str, param: str = "pool") -> Pool:
    """The pool of this name. param: the field that names it. Raises InvalidField."""
    if (pool := state.pool(name)) is None:
        raise InvalidField(f"There is no pool {name!r}; pools: {_names(state.pools)}.", param=param)
    return pool


def _names(objects: tuple[Model, ...] | tuple[Pool, ...]) -> str:
    return ", ".join(each.name for each in objects) or "none"
