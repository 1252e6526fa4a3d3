"""Reads editors' keys: most send `Authorization`, some `x-api-key`, some both."""

from __future__ import annotations

from collections.abc import Mapping


def authorization_of(headers: Mapping[bytes, bytes]) -> bytes:
    """The key as an `Authorization` header has it; b"" when there is none."""
    authorization = headers.get(b"authorization")
    if authorization:
        return authorization
    key = headers.get(b"x-api-key")
    return b"Bearer " + key if key else b""
