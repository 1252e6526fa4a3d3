"""An endpoint as OpenAPI documents it, whichever API it belongs to. Two APIs that share a path have one each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from gateway.wire.errors import ErrorBody


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """POST of a path that generates text, counts it, or makes vectors and scores of it."""

    path: str
    """`{name}` stands for a segment that the client chooses."""
    name: str
    """Unique name of the operation."""
    summary: str
    body: type
    """The struct that decodes the request: its schema is the documented one."""
    answer: Any
    """The shape of an unstreamed response."""
    error: type = ErrorBody
    """The shape of a refusal."""
    refusals: Mapping[int, str] = MappingProxyType({})
    """Statuses that no other API has, with their meaning."""
    streamed: bool = True
    """A response may be a stream of events."""
