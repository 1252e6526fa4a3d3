"""A LoRA adapter of a tenant: its name for clients, and its name for engines."""

from __future__ import annotations

import msgspec

SEPARATOR = ":"
"""Separates a model's name and an adapter's in the `model` field of a request."""


ENGINE_NAME = "lora-"
"""Prefix of the engines' names for adapters."""


class Adapter(msgspec.Struct, frozen=True):
    """An adapter that belongs to an organization, or to one of its projects; it is invisible to others."""

    id: str
    """A UUID in text form."""
    name: str
    """The tenant's own name: two tenants may use the same."""
    model: str
    """The public name of the base model."""
    path: str
    """The folder, in PEFT's format, as the engines reach it."""

    @property
    def engine_name(self) -> str:
        """The engines' name for it: unique, and free of text that a client wrote."""
        return ENGINE_NAME + self.id

    @property
    def public_name(self) -> str:
        """The clients' name for it, in the `model` field."""
        return f"{self.model}{SEPARATOR}{self.name}"
