"""Why there is nothing to judge."""

from __future__ import annotations


class NotMeasured(Exception):
    """No connection, or no stream: the message says which and what to do."""
