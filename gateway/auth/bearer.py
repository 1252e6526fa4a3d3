"""Authenticates requests by the key in their `Authorization: Bearer` header, or in a format's equivalent."""

from __future__ import annotations

from contracts.errors import MissingKey
from gateway.auth.key_record import KeyRecord
from gateway.auth.keyring import Keyring


async def authenticate(authorization: bytes, keyring: Keyring) -> KeyRecord:
    """The key's record. Raises AuthError or AuthUnavailable."""
    secret = bearer_secret(authorization.decode("latin-1"), "sk-slip-...")
    return keyring.cached(secret) or await keyring.identify(secret)


def bearer_secret(authorization: str, example: str) -> str:
    """The secret in the header's value. example: a key for the error. Raises MissingKey."""
    scheme, _, secret = authorization.partition(" ")
    if scheme.lower() != "bearer" or not secret:
        raise MissingKey(f"The request has no API key. Send it as 'Authorization: Bearer {example}'.")
    return secret
