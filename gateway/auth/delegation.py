"""Creates the tokens with which the deployment's worker sends requests for a tenant's key, whose secret is not stored.

    sk-slip-line- + the key's stored hash + '.' + end in epoch seconds + '.' + HMAC-SHA256(pepper, all of it)

A token begins with `sk-slip-background-` for a background response, and with `sk-slip-line-` for a batch's line.

Only processes with the deployment's pepper can create one. The stored hash is that of the key's current secret, so a
rotated, revoked or expired key is refused as usual.
"""

from __future__ import annotations

import hmac

from contracts.errors import InvalidKey

PREFIX, BACKGROUND_PREFIX = PREFIXES = ("sk-slip-line-", "sk-slip-background-")
VALID_S = 300
"""Lifetime of a token, after which a leaked one is useless."""


def delegated(key_hash: bytes, pepper: bytes, now_s: float, prefix: str = PREFIX) -> str:
    """A token for requests of this key. now_s: epoch seconds."""
    body = f"{prefix}{key_hash.hex()}.{int(now_s) + VALID_S}"
    return f"{body}.{_signature(body, pepper)}"


def key_hash_of(token: str, pepper: bytes, now_s: float) -> bytes:
    """The hash of the token's key. Raises InvalidKey, also for an expired token: its key is valid, and the worker
    retries."""
    body, _, signature = token.rpartition(".")
    if not hmac.compare_digest(_signature(body, pepper).encode(), signature.encode("utf-8", "surrogatepass")):
        raise InvalidKey("This is not an API key of this deployment.")
    key_hash, _, until = body.rpartition("-")[2].partition(".")
    if int(until) < now_s:
        raise InvalidKey(
            "This token has expired; if the worker's new tokens have expired too, compare the clocks of both machines."
        )
    return bytes.fromhex(key_hash)


def _signature(body: str, pepper: bytes) -> str:
    # no API key begins like this, so no stored hash is a signature
    return hmac.digest(pepper, b"batch line:" + body.encode("utf-8", "surrogatepass"), "sha256").hex()
