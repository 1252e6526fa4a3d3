"""The list of mutations: small faults, most of which were once real, and the gate's tests that must catch them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("mutations.toml")


class Mutation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One fault in one file."""

    name: str
    fault: str
    """The damage that a user would see."""
    file: str
    """Path below the repository's root."""
    old: str
    """Text that occurs in the file exactly once."""
    new: str
    tests: tuple[str, ...]
    """Paths below the root; the gate's markers select tests there."""

    def applied_to(self, text: str) -> str:
        """The file's text with the fault. Raises ValueError if `old` does not occur in it exactly once."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.old!r} occurs {text.count(self.old)} times in {self.file}, not once")
        return text.replace(self.old, self.new)


class _Listed(msgspec.Struct, forbid_unknown_fields=True):
    mutation: list[Mutation]


def read_mutations() -> list[Mutation]:
    """All of `mutations.toml`. Raises msgspec.ValidationError for an entry that lacks a field."""
    return msgspec.convert(tomllib.loads(LIST.read_text()), _Listed).mutation
