"""The names by which requests to a pool's engines name models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from contracts.desired_state import Model


class ServedName(msgspec.Struct, frozen=True):
    """A model's name in requests to a pool's engines."""

    setting: str
    """The setting that defines the name."""
    name: str
    model: Model


def served_names(models: Sequence[Model], pool_name: str) -> Iterator[ServedName]:
    """The names of all models that use the pool, for a canary or its control too."""
    for model in models:
        name = model.engine_model or model.name
        canary = model.canary
        if pool_name == model.pool or (canary is not None and pool_name == canary.control_pool):
            yield ServedName(f"models.{model.name}.engine_model", name, model)
        if canary is not None and pool_name == canary.pool:
            yield ServedName(f"models.{model.name}.canary.engine_model", canary.engine_model or name, model)
