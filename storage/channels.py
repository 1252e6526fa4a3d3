"""Names of the channels on which the database notifies processes."""

from __future__ import annotations

KEYS_CHANNEL = "slipstream_keys"
"""Notified with the hex of a key's hash when that key changed, with `project:<id>` or `organization:<id>` when all keys
of one may have, with `*` when any may have."""
PRICES_CHANNEL = "slipstream_prices"
"""Notified, without a payload, when any price changed."""
DESIRED_CHANNEL = "slipstream_desired"
"""Notified with the number of a new desired-state version."""
