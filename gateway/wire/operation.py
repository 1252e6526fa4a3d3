"""An endpoint as OpenAPI documents it, whichever API it belongs to."""

from __future__ import annotations

import msgspec


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """POST of a path that generates text."""

    path: str
    """`{name}` stands for a step that the client chooses."""
    name: str
    """Of the operation, unlike any other's."""
    summary: str
    body: type
    """What decodes the request: its schema is the documented one."""
    answer: type
    """The shape of an answer that is not streamed."""
