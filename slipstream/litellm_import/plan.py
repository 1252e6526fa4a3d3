"""The planned import: objects to make, and a note for each entry that becomes something else or nothing. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from contracts.desired_state import Model, Pool
from gateway.auth.scopes import Scope
from gateway.limits.levels import Limits

NAME_CHARACTERS = 200


class Outcome(StrEnum):
    """The treatment of an entry that has no exact counterpart."""

    DIFFERS = "differs"
    """The entry is imported, but has another meaning here."""
    LEFT_OUT = "left out"


class Note(msgspec.Struct, frozen=True):
    """where: the entry in LiteLLM's terms. what: the difference. step: the next step for a person."""

    outcome: Outcome
    where: str
    what: str
    step: str = ""


class PlannedPrice(msgspec.Struct, frozen=True, kw_only=True):
    """Millionths of the currency for a million tokens. None for the platform's default."""

    input_micro: int
    output_micro: int
    cached_input_micro: int | None = None
    cache_write_micro: int | None = None


class PlannedModel(msgspec.Struct, frozen=True):
    """One model and its own pool."""

    model: Model
    pool: Pool
    price: PlannedPrice | None = None


class PlannedKey(msgspec.Struct, frozen=True, kw_only=True):
    """sha256: the secret's hash, as LiteLLM stores it. scopes: None for all."""

    name: str
    display: str
    sha256: bytes
    expires_at: datetime | None
    scopes: list[Scope] | None
    limits: Limits


class PlannedProject(msgspec.Struct, kw_only=True):
    """models: None for all."""

    name: str
    models: list[str] | None = None
    limits: Limits = Limits()
    disabled: bool = False
    keys: list[PlannedKey] = []


class PlannedOrganization(msgspec.Struct, kw_only=True):
    """projects: by name."""

    name: str
    models: list[str] | None = None
    limits: Limits = Limits()
    disabled: bool = False
    projects: dict[str, PlannedProject] = {}

    def project(self, name: str, **values: Any) -> PlannedProject:
        """The project with this name, created with these values if it is new."""
        return self.projects.setdefault(name, PlannedProject(name=name, **values))


class Plan(msgspec.Struct, frozen=True):
    """Everything to import, in LiteLLM's order."""

    models: list[PlannedModel]
    organizations: list[PlannedOrganization]
    notes: list[Note]


class Notes(list[Note]):
    """Notes in the order of the entries."""

    def differs(self, where: str, what: str, step: str = "") -> None:
        """Note an entry that is imported, but has another meaning here."""
        self.append(Note(Outcome.DIFFERS, where, what, step))

    def left_out(self, where: str, what: str, step: str = "") -> None:
        """Note an entry that is not imported."""
        self.append(Note(Outcome.LEFT_OUT, where, what, step))

    def unused(self, where: str, row: dict[str, Any], names: Iterable[str]) -> None:
        """Note the fields that have a value, in one note."""
        used = [name for name in names if row.get(name) not in (None, "", [], {}, False)]
        if used:
            self.left_out(where, f"{', '.join(used)}: no counterpart")
