"""A LoRA adapter of a tenant: what clients call it, and what engines do."""

from __future__ import annotations

import msgspec

SEPARATOR = ":"
"""Between a model's name and an adapter's, in what clients write as `model`."""


ENGINE_NAME = "lora-"
"""How engines' names for adapters begin."""


class Adapter(msgspec.Struct, frozen=True):
    """Belongs to an organization, or to one of its projects; others see nothing of it."""

    id: str
    """A UUID in text form."""
    name: str
    """The tenant's own: two tenants may give the same name."""
    model: str
    """The public name of the model that it changes."""
    path: str
    """The folder, in PEFT's format, as the engines reach it."""

    @property
    def engine_name(self) -> str:
        """What engines call it: unique, and nothing that a client wrote."""
        return ENGINE_NAME + self.id

    @property
    def public_name(self) -> str:
        """What clients write as `model`."""
        return f"{self.model}{SEPARATOR}{self.name}"
