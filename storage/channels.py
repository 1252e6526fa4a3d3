"""Names of the channels on which the database notifies processes."""

from __future__ import annotations

KEYS_CHANNEL = "slipstream_keys"
"""The payload is the hex hash of a key that has changed, `project:<id>` or `organization:<id>` if any of its keys may
have changed, or `*` if any key may have."""
PRICES_CHANNEL = "slipstream_prices"
"""Notified, without a payload, when a price has changed."""
DESIRED_CHANNEL = "slipstream_desired"
"""Notified with the number of a new desired-state version."""
