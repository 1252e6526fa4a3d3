"""Signs deliveries by Standard Webhooks 1.0, which libraries of many languages verify.

    webhook-id: the event's id        webhook-timestamp: seconds since 1970        webhook-signature: v1,<base64> …

HMAC-SHA256 signs `id.timestamp.body`, with the time so that an old delivery cannot be replayed. While a secret is being
rotated, the header has two signatures, separated by a space. Source: standardwebhooks.com, version 1.0.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Iterable

SECRET_PREFIX = "whsec_"
SECRET_BYTES = 32


def new_secret() -> str:
    """A new secret, in the form that receivers' libraries expect."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def headers(event_id: str, timestamp_s: int, body: bytes, live: Iterable[str]) -> dict[str, str]:
    """The three headers. live: the valid secrets, the newest first."""
    signatures = " ".join(f"v1,{_signature(event_id, timestamp_s, body, secret)}" for secret in live)
    return {"webhook-id": event_id, "webhook-timestamp": str(timestamp_s), "webhook-signature": signatures}


def _signature(event_id: str, timestamp_s: int, body: bytes, secret: str) -> str:
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    signed = f"{event_id}.{timestamp_s}.".encode() + body
    return base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
