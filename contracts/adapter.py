"""A LoRA adapter of a tenant: its name for clients, and its name for engines."""

from __future__ import annotations

import msgspec

SEPARATOR = ":"
"""Separates the model's name from the adapter's in the `model` field of a request."""
ENGINE_NAME = "lora-"
"""Prefix of the engines' names for adapters."""


class Adapter(msgspec.Struct, frozen=True):
    """An adapter that belongs to an organization, or to one of its projects; it is invisible to others."""

    id: str
    """A UUID in text form."""
    name: str
    """The tenant's name for the adapter; two tenants may use the same name."""
    model: str
    """The public name of the base model."""
    path: str
    """The folder, in PEFT's format, as the engines reach it."""

    @property
    def engine_name(self) -> str:
        """The engines' name for the adapter: unique, and without text from a client."""
        return ENGINE_NAME + self.id

    @property
    def public_name(self) -> str:
        """The clients' name for the adapter, in the `model` field."""
        return f"{self.model}{SEPARATOR}{self.name}"
