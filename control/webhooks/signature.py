"""Signs deliveries as Standard Webhooks 1.0 says, for which every language has a verifying library.

    webhook-id: the event's id        webhook-timestamp: seconds since 1970        webhook-signature: v1,<base64> …

Signed is `id.timestamp.body`, by HMAC-SHA256; the time is inside, so that an old delivery cannot be sent again. While a
secret is being rotated there are two signatures, with a space between. Source: standardwebhooks.com, specification 1.0.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Iterable

SECRET_PREFIX = "whsec_"
SECRET_BYTES = 32


def new_secret() -> str:
    """A new secret, in the form receivers' libraries take."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def headers(event_id: str, timestamp_s: int, body: bytes, live: Iterable[str]) -> dict[str, str]:
    """The three headers. live: the secrets in force, the newest first."""
    signatures = " ".join(f"v1,{_signature(event_id, timestamp_s, body, secret)}" for secret in live)
    return {"webhook-id": event_id, "webhook-timestamp": str(timestamp_s), "webhook-signature": signatures}


def _signature(event_id: str, timestamp_s: int, body: bytes, secret: str) -> str:
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    signed = f"{event_id}.{timestamp_s}.".encode() + body
    return base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
