"""Under which names the engines of a pool are asked for models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from contracts.desired_state import Model


class ServedName(msgspec.Struct, frozen=True):
    """What a model asks a pool's engines for."""

    setting: str
    """Which setting says so."""
    name: str
    model: Model


def served_names(models: Sequence[Model], pool_name: str) -> Iterator[ServedName]:
    """Of every model that has the pool, or a canary or its control there."""
    for model in models:
        name = model.engine_model or model.name
        canary = model.canary
        if pool_name == model.pool or (canary is not None and pool_name == canary.control_pool):
            yield ServedName(f"models.{model.name}.engine_model", name, model)
        if canary is not None and pool_name == canary.pool:
            yield ServedName(f"models.{model.name}.canary.engine_model", canary.engine_model or name, model)
