"""A request as a client sends it, and what must come of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

FIXTURES = Path(__file__).parent / "fixtures"


class Fixture(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of `fixtures/`; `$KEY` and `$MODEL` in it stand for the deployment's own."""

    client: str
    what: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    texts: tuple[str, ...]
    """The model's tokens."""
    reader: str
    """Of `clients.READERS`."""
    shown: str
    """What the client shows of them."""
    prefix: str
    """What the engine must be asked to go on from, at its end."""
    suffix: str
    limit: int | None
    """Tokens that the engine must be asked for at most; None: not told."""


def fixture(name: str, key: str, model: str) -> Fixture:
    """A file's, for this deployment."""
    raw = (FIXTURES / f"{name}.json").read_bytes()
    return msgspec.json.decode(raw.replace(b"$KEY", key.encode()).replace(b"$MODEL", model.encode()), type=Fixture)


def names() -> list[str]:
    """All there are."""
    return sorted(path.stem for path in FIXTURES.glob("*.json"))
