"""Secrets that must be read again later, unreadable in a stolen table: AES-256-GCM under keys made from the pepper.

The pepper is not in the database. Every use has its own key, by name, and the name is authenticated: a sealed text
moved to another row does not open.
"""

from __future__ import annotations

import hmac
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_BYTES = 12


def seal(pepper: bytes, use: str, plain: bytes) -> bytes:
    """use: its purpose, `webhook:<id>`."""
    nonce = os.urandom(NONCE_BYTES)
    return nonce + _cipher(pepper, use).encrypt(nonce, plain, use.encode())


def unseal(pepper: bytes, use: str, sealed: bytes) -> bytes:
    """The sealed text. Raises ValueError when pepper or use differ, or the bytes were changed."""
    try:
        return _cipher(pepper, use).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], use.encode())
    except InvalidTag:
        raise ValueError(f"{use}: cannot be opened with this deployment's pepper") from None


def _cipher(pepper: bytes, use: str) -> AESGCM:
    return AESGCM(hmac.digest(pepper, b"sealed:" + use.encode(), "sha256"))
