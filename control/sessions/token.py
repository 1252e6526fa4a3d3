"""What a browser is known by: a random secret that is signed, of which only a hash is stored. Pure.

    43 characters of 32 random bytes + "." + 22 characters of HMAC-SHA256(pepper, those)

The signature refuses what was made up without asking the database. The token that proves that a request comes from our
own page, and from no other site, is another HMAC of the same secret: it needs no store, and one session's is worth
nothing in another.
"""

from __future__ import annotations

import base64
import hmac
import secrets

import msgspec

RANDOM_BYTES = 32
SIGNATURE_BYTES = 16


class SessionToken(msgspec.Struct, frozen=True):
    """One session's secret, `hash` as it is stored, and `csrf` as the page sends it back."""

    secret: str
    hash: bytes
    csrf: str

    def __repr__(self) -> str:
        return "SessionToken(…)"


def mint(pepper: bytes) -> SessionToken:
    """A new one."""
    return _of(pepper, _text(secrets.token_bytes(RANDOM_BYTES)))


def opened(pepper: bytes, secret: str) -> SessionToken | None:
    """The token of what a browser sent; None for what was never made here."""
    random, _, _ = secret.partition(".")
    made = _of(pepper, random)
    return made if secret.isascii() and hmac.compare_digest(made.secret, secret) else None


def link_hash(pepper: bytes, token: str) -> bytes:
    """What is stored of the token of a one-time link."""
    return hmac.digest(pepper, b"console link:" + token.encode("utf-8", "replace"), "sha256")


def _of(pepper: bytes, random: str) -> SessionToken:
    def keyed(use: bytes) -> bytes:
        return hmac.digest(pepper, b"console " + use + b":" + random.encode("utf-8", "replace"), "sha256")

    signature = _text(keyed(b"cookie")[:SIGNATURE_BYTES])
    return SessionToken(f"{random}.{signature}", keyed(b"session"), _text(keyed(b"csrf")))


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
