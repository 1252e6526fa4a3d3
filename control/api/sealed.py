"""Encrypts secrets that are read again later, with AES-256-GCM and keys derived from the pepper.

The pepper is not in the database. Every use has its own key, and its name is authenticated, so that a sealed text does
not open after it is moved to another row.
"""

from __future__ import annotations

import hmac
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_BYTES = 12


def seal(pepper: bytes, use: str, plain: bytes) -> bytes:
    """Seal a text. use: its purpose, such as `webhook:<id>`."""
    nonce = os.urandom(NONCE_BYTES)
    return nonce + _cipher(pepper, use).encrypt(nonce, plain, use.encode())


def unseal(pepper: bytes, use: str, sealed: bytes) -> bytes:
    """Open a sealed text. Raises ValueError if the pepper or the use differs, or the bytes were changed."""
    try:
        return _cipher(pepper, use).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], use.encode())
    except InvalidTag:
        raise ValueError(f"{use}: cannot be opened with this deployment's pepper") from None


def _cipher(pepper: bytes, use: str) -> AESGCM:
    return AESGCM(hmac.digest(pepper, b"sealed:" + use.encode(), "sha256"))
