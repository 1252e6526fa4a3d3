"""A desired state as a row of `gateway.desired_states`: the version is the row's key, the rest its JSON document."""

from __future__ import annotations

import msgspec

from contracts.desired_state import DesiredState, Model, Pool
from contracts.errors import ConfigError


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    models: tuple[Model, ...]
    pools: tuple[Pool, ...]


def encode(models: tuple[Model, ...], pools: tuple[Pool, ...]) -> str:
    """The document of a row."""
    return msgspec.json.encode(_Document(models, pools)).decode()


def decode(version: int, document: str) -> DesiredState:
    """The state a row holds. Raises ConfigError for a document that this release cannot read."""
    try:
        content = msgspec.json.decode(document, type=_Document)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"desired state, version {version}: {error}; was it written by a newer release? Upgrade this instance, "
            "or put a version that both can read"
        ) from None
    return DesiredState(version=version, models=content.models, pools=content.pools)
