"""Reads clients' keys. Most clients send `Authorization`, some `x-api-key`, some both."""

from __future__ import annotations

from collections.abc import Mapping

from contracts.errors import InvalidKey

_SCHEME = b"Bearer "


def authorization_of(headers: Mapping[bytes, bytes]) -> bytes:
    """The key as an `Authorization` header has it; b"" if there is none.

    Raises InvalidKey if the two headers hold different keys: the key that pays must not depend on the API.
    """
    authorization, key = headers.get(b"authorization"), headers.get(b"x-api-key")
    if not key:
        return authorization or b""
    if not authorization:
        return _SCHEME + key
    scheme, _, secret = authorization.partition(b" ")
    if scheme.lower() != b"bearer" or secret.strip() != key.strip():
        raise InvalidKey(
            "'Authorization' and 'x-api-key' hold different keys. Send one of them, or the same key in both."
        )
    return authorization
