"""Names one run of one gateway process in the limiter's store."""

from __future__ import annotations

import secrets

import msgspec


class Epoch(msgspec.Struct, frozen=True):
    """One run. instance: the name of the gateway and its journal, stable across restarts. run: new at every start."""

    instance: str
    run: str

    @property
    def name(self) -> str:
        """The name that owns the run's reservations."""
        return f"{self.instance}.{self.run}"


def new_epoch(instance: str) -> Epoch:
    return Epoch(instance, secrets.token_hex(6))


def organizations_key(prefix: str, instance: str) -> str:
    """Key of a set of `<epoch> <organization>`, where this instance's runs may have open reservations."""
    return f"{prefix}:instance:{instance}"
