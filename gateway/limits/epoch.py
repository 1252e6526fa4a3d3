"""One run of one gateway process, as the limiter's store knows it."""

from __future__ import annotations

import secrets

import msgspec


class Epoch(msgspec.Struct, frozen=True):
    """instance: the gateway's name, stable over restarts, and its journal's. run: new with every start."""

    instance: str
    run: str

    @property
    def name(self) -> str:
        """The name that holds reservations."""
        return f"{self.instance}.{self.run}"


def new_epoch(instance: str) -> Epoch:
    return Epoch(instance, secrets.token_hex(6))


def organizations_key(prefix: str, instance: str) -> str:
    """A set of `<epoch> <organization>`: possible open reservations of this instance's runs."""
    return f"{prefix}:instance:{instance}"
