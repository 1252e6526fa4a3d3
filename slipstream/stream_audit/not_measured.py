"""The error of an audit that could not measure anything."""

from __future__ import annotations


class NotMeasured(Exception):
    """Raised if there is no connection or no stream; the message names the cause and the next step."""
