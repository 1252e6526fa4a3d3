"""A desired state as a row of `gateway.desired_states`: the version is the row's key, the rest its JSON document."""

from __future__ import annotations

from typing import Any

import msgspec

from contracts.desired_state import DesiredState, Model, Pool
from contracts.errors import ConfigError

_RENAMED = {"running_usage": "continuous_usage_stats"}
"""Fields of pools in rows of earlier releases, with their current names."""
_FIM = "fim_"
"""Prefix, in rows of earlier releases, of the fields that are now in a model's `fim`."""


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    models: tuple[Model, ...]
    pools: tuple[Pool, ...]


class _Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The part of a document that must be known to rename its fields."""

    models: list[dict[str, Any]]
    pools: list[dict[str, Any]]


def encode(models: tuple[Model, ...], pools: tuple[Pool, ...]) -> str:
    """The document of a row."""
    return msgspec.json.encode(_Document(models, pools)).decode()


def decode(version: int, document: str) -> DesiredState:
    """The state that a row holds. Raises ConfigError for a document that this release cannot read."""
    try:
        written = msgspec.json.decode(document, type=_Written)
        for pool in written.pools:
            for old, new in _RENAMED.items():
                if old in pool:
                    pool[new] = pool.pop(old)
        for model in written.models:
            old_names = [name for name in model if name.startswith(_FIM)]
            if old_names and "fim" not in model:
                model["fim"] = {name.removeprefix(_FIM): model.pop(name) for name in old_names}
        content = msgspec.convert(msgspec.structs.asdict(written), _Document)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"desired state, version {version}: {error}; was it written by a newer release? Upgrade this instance, "
            "or restore a version that both releases can read: `slipstream fleet rollback`"
        ) from None
    return DesiredState(version=version, models=content.models, pools=content.pools)
