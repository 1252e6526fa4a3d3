"""Creates API keys, checks them for typing errors, and hashes them. Pure, without a database.

    sk-slip- + 32 random base62 characters (190 bits) + 6 base62 characters of CRC-32 over everything before them

The prefix lets secret scanners find leaks, and the checksum refuses a mistyped key without a lookup. Only
HMAC-SHA256(pepper, key) is stored: with that many random bits, a slow hash would protect nothing, and the pepper makes
a stolen table useless. A key is found by that HMAC, so no comparison's timing reveals anything about a stored key.

A key of another gateway (`sk-…`) may have been imported. Only its SHA-256 is known, so the HMAC of that is stored. It
works as its record states until it is rotated or revoked. Pepper and table without a key give no access.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import zlib

import msgspec

from contracts.errors import InvalidKey, WrongKeyKind

PREFIX = "sk-slip-"
ADMIN_PREFIX = "sk-slip-admin-"
"""Prefix of admin keys, which otherwise have the same form. Random characters contain no hyphen, so the two kinds never
mix."""
RANDOM_CHARACTERS = 32
CHECKSUM_CHARACTERS = 6
TAIL = RANDOM_CHARACTERS + CHECKSUM_CHARACTERS
LENGTH = len(PREFIX) + TAIL
FOREIGN_PREFIX = "sk-"
"""Prefix of the keys of LiteLLM's proxy, the only foreign keys that can be imported."""
FOREIGN_LENGTHS = range(8, 201)
PROVIDERS = {
    "sk-ant-": "Anthropic",
    "sk-or-": "OpenRouter",
    "sk-proj-": "OpenAI",
    "sk-svcacct-": "OpenAI",
    "sk-admin-": "OpenAI",
    "gsk_": "Groq",
    "hf_": "Hugging Face",
    "AIza": "Google",
}
"""Prefixes of other providers' keys that clients send by mistake."""
UNKNOWN = "This API key does not exist here. It may be another deployment's: check the key and the base URL."
"""Error for a key whose checksum is right and whose hash is unknown."""
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class MintedKey(msgspec.Struct, frozen=True):
    """A new key. Its owner sees `secret` once, the database stores `hash`, and lists show `display`."""

    secret: str
    hash: bytes
    display: str

    def __repr__(self) -> str:
        return f"MintedKey({self.display!r})"


def mint(pepper: bytes, prefix: str = PREFIX) -> MintedKey:
    body = prefix + "".join(secrets.choice(ALPHABET) for _ in range(RANDOM_CHARACTERS))
    secret = body + _checksum(body)
    return MintedKey(secret=secret, hash=hash_of(secret, pepper), display=display_of(secret))


def check(secret: str, prefix: str = PREFIX) -> None:
    """Return if the secret is well-formed and of the kind that `prefix` names.

    Raises WrongKeyKind for the other kind, InvalidKey for anything else; neither repeats the secret. An inference key
    in another gateway's form passes, because only the database knows whether it was imported.
    """
    _check_kind(secret, prefix)
    if prefix == PREFIX and is_foreign(secret):
        return
    if not secret.startswith(prefix):
        raise InvalidKey(_not_ours(secret, prefix))
    if len(secret) != len(prefix) + TAIL:
        raise InvalidKey(
            f"An API key has {len(prefix) + TAIL} characters, this one has {len(secret)}: it was cut or extended."
        )
    body, checksum = secret[:-CHECKSUM_CHARACTERS], secret[-CHECKSUM_CHARACTERS:]
    if not secret.isascii() or not hmac.compare_digest(_checksum(body), checksum):
        raise InvalidKey("This API key is mistyped: its checksum does not match. Copy the whole key again.")


def is_foreign(secret: str) -> bool:
    """Whether it has the form of another gateway's key, which may have been imported."""
    return (
        secret.startswith(FOREIGN_PREFIX)
        and not secret.startswith((PREFIX, *PROVIDERS))
        and len(secret) in FOREIGN_LENGTHS
        and secret.isascii()
    )


def unknown(secret: str) -> str:
    """The error for a well-formed key whose hash is unknown."""
    return _not_ours(secret, PREFIX) if is_foreign(secret) else UNKNOWN


def _not_ours(secret: str, prefix: str) -> str:
    return f"{_whose(secret)} Keys of this deployment start with {prefix}; ask the deployment's operator for one."


def _check_kind(secret: str, prefix: str) -> None:
    is_admin = secret.startswith(ADMIN_PREFIX)
    if is_admin and prefix == PREFIX:
        raise WrongKeyKind(
            "This is an admin key, which is valid for /admin/v1 only; inference needs a project's key, which "
            f"starts with {PREFIX}."
        )
    if not is_admin and secret.startswith(PREFIX) and prefix == ADMIN_PREFIX:
        raise WrongKeyKind(
            "This is an inference key, which is valid for /v1 only; the admin API needs one that starts with "
            f"{ADMIN_PREFIX}."
        )


def _whose(secret: str) -> str:
    """The provider of a foreign key; the text repeats only the prefix that all its keys share."""
    for beginning, provider in PROVIDERS.items():
        if secret.startswith(beginning):
            return f"This is a key of {provider}'s ({beginning}…), which is not valid here."
    return "This is not a Slipstream API key."


def hash_of(secret: str, pepper: bytes) -> bytes:
    """The stored hash of the secret, 32 bytes."""
    if is_foreign(secret):
        return imported_hash(hashlib.sha256(secret.encode()).digest(), pepper)
    return hmac.digest(pepper, secret.encode(), "sha256")


def imported_hash(sha256: bytes, pepper: bytes) -> bytes:
    """The stored hash of another gateway's key with this SHA-256. No key begins like the hashed text."""
    return hmac.digest(pepper, b"imported sha256 " + sha256, "sha256")


def display_of(secret: str) -> str:
    """The name of a key in lists. The last four characters belong to the checksum."""
    prefix = ADMIN_PREFIX if secret.startswith(ADMIN_PREFIX) else PREFIX
    return f"{prefix}…{secret[-4:]}"


def _checksum(body: str) -> str:
    number = zlib.crc32(body.encode())
    digits = []
    for _ in range(CHECKSUM_CHARACTERS):
        number, digit = divmod(number, len(ALPHABET))
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))
