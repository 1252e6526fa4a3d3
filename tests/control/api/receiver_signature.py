"""What a webhook's receiver does with a signature (standardwebhooks.com, specification 1.0)."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping

TOLERANCE_S = 300


def verify(given: Mapping[str, str], body: bytes, secret: str, now_s: float) -> bool:
    """Whether a delivery is genuine and at most five minutes old. given: lower-case headers."""
    timestamp_s = int(given["webhook-timestamp"])
    signed = f"{given['webhook-id']}.{timestamp_s}.".encode() + body
    key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    expected = base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
    offered = [part.partition(",") for part in given["webhook-signature"].split()]
    return abs(now_s - timestamp_s) <= TOLERANCE_S and any(
        version == "v1" and hmac.compare_digest(signature, expected) for version, _, signature in offered
    )
