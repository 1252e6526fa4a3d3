"""Codes of an authenticator (TOTP, RFC 6238), each accepted once, and recovery codes in their place. Pure."""

from __future__ import annotations

import hmac
import secrets
import time

import pyotp

STEP_S = 30
DRIFT_STEPS = 1
"""Phones' clocks may be off by this many steps."""
DIGITS = 6
RECOVERY_CODES = 10
RECOVERY_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
RECOVERY_CHARACTERS = 16
"""Each is one of 31: 79 bits in all."""
ISSUER = "Slipstream"


def new_secret() -> str:
    """160 random bits in base 32."""
    return pyotp.random_base32()


def uri(secret: str, email: str) -> str:
    """The `otpauth://` URI for a QR code."""
    return pyotp.TOTP(secret, digits=DIGITS, interval=STEP_S).provisioning_uri(name=email, issuer_name=ISSUER)


def step_of(secret: str, code: str, now_s: float | None = None) -> int | None:
    """The time step of this code; None if it belongs to no step near now. now_s: seconds since 1970."""
    now = int((time.time() if now_s is None else now_s) // STEP_S)
    totp = pyotp.TOTP(secret, digits=DIGITS, interval=STEP_S)
    found = None
    for step in range(now - DRIFT_STEPS, now + DRIFT_STEPS + 1):
        if hmac.compare_digest(totp.generate_otp(step).encode(), _plain(code).encode("utf-8", "replace")):
            found = step
    return found


def recovery_codes() -> list[str]:
    """New codes in display form: `abcd-efgh-jkmn-pqrs`."""

    def one() -> str:
        text = "".join(secrets.choice(RECOVERY_ALPHABET) for _ in range(RECOVERY_CHARACTERS))
        return "-".join(text[at : at + 4] for at in range(0, RECOVERY_CHARACTERS, 4))

    return [one() for _ in range(RECOVERY_CODES)]


def recovery_hash(pepper: bytes, account_id: object, code: str) -> bytes:
    """The stored form of a recovery code."""
    return hmac.digest(pepper, f"console recovery:{account_id}:{_plain(code)}".encode("utf-8", "replace"), "sha256")


def _plain(code: str) -> str:
    return code.replace("-", "").replace(" ", "").lower()
