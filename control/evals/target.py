"""The target of a run of evals in a desired state: the model, the pool, and its engines' name for the model."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from contracts.desired_state import DesiredState
from contracts.errors import InvalidField
from control.fleet.named import model_named, pool_named


class Target(msgspec.Struct, frozen=True):
    """A model on a pool. engine_model: the pool's engines' name for it."""

    model: str
    pool: str
    engine_model: str


def target_of(state: DesiredState, model_name: str, pool_name: str | None, field: str = "pool") -> Target:
    """The target of these names. pool_name: None for the model's own; field: the parameter that errors name.

    Raises InvalidField, with the existing names, for a target that cannot be asked.
    """
    model = model_named(state, model_name)
    found = pool_named(state, pool_name or model.pool, field)
    if found.role == "prefill":
        raise InvalidField(
            f"The pool {found.name!r} computes prompts for other pools and serves no clients; name one of those pools.",
            param=field,
        )
    pool = found.name
    engine_model = model.engine_model or model.name
    if model.canary is not None and pool == model.canary.pool:
        engine_model = model.canary.engine_model or engine_model
    if model.cascade is not None and pool != model.pool:
        first = state.model(model.cascade.first)
        if first is not None and pool == first.pool:  # the cascade begins there
            engine_model = first.engine_model or first.name
    return Target(model.name, pool, engine_model)


def version_of(state: DesiredState, target: Target, engines: Mapping[str, str]) -> dict[str, str]:
    """The version behind a night's answers, as text by name; empty values are left out. engines: known start options of
    the pool's engines, in addition to the desired state.

    Two nights with equal versions ran the same software, as far as is known.
    """
    model, pool = model_named(state, target.model), pool_named(state, target.pool)
    found = {
        "pool": target.pool,
        "engine_model": target.engine_model,
        "driver": pool.driver,
        "hardware": pool.hardware_of(),
        "tokenizer": model.tokenizer or "",
        "chat_template_kwargs": _as_text(model.chat_template_kwargs),
        "fim": _as_text(model.fim),
        **engines,
    }
    return {name: value for name, value in found.items() if value}


def _as_text(settings: object) -> str:
    """The settings as JSON; empty if all are the defaults."""
    text = msgspec.json.encode(settings, order="sorted").decode()
    return "" if text == "{}" else text
