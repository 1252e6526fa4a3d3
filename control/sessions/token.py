"""The token of a browser's session: a random, signed secret, of which only a hash is stored. Pure.

    43 characters of 32 random bytes + "." + 22 characters of HMAC-SHA256(pepper, those)

The signature exposes invented secrets without a query to the database. The CSRF token, which proves that the console's
own page sent a request, is another HMAC of the same secret. It needs no storage, and one session's token is worthless
in another session.
"""

from __future__ import annotations

import base64
import hmac
import secrets

import msgspec

RANDOM_BYTES = 32
SIGNATURE_BYTES = 16


class SessionToken(msgspec.Struct, frozen=True):
    """One session's secret, its stored `hash`, and `csrf`, which the page sends back."""

    secret: str
    hash: bytes
    csrf: str

    def __repr__(self) -> str:
        return "SessionToken(…)"


def mint(pepper: bytes) -> SessionToken:
    """Create a token."""
    return _of(pepper, _text(secrets.token_bytes(RANDOM_BYTES)))


def opened(pepper: bytes, secret: str) -> SessionToken | None:
    """The token of a secret that a browser sent; None if the secret was not made here."""
    random, _, _ = secret.partition(".")
    expected = _of(pepper, random)
    return expected if secret.isascii() and hmac.compare_digest(expected.secret, secret) else None


def link_hash(pepper: bytes, token: str) -> bytes:
    """The stored hash of a one-time link's token."""
    return hmac.digest(pepper, b"console link:" + token.encode("utf-8", "replace"), "sha256")


def _of(pepper: bytes, random: str) -> SessionToken:
    def keyed(use: bytes) -> bytes:
        return hmac.digest(pepper, b"console " + use + b":" + random.encode("utf-8", "replace"), "sha256")

    signature = _text(keyed(b"cookie")[:SIGNATURE_BYTES])
    return SessionToken(f"{random}.{signature}", keyed(b"session"), _text(keyed(b"csrf")))


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
