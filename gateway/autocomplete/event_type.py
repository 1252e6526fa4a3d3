"""What a user did with a completion."""

from __future__ import annotations

from enum import StrEnum


class EventType(StrEnum):
    """What a user did with a completion."""

    VIEW = "view"
    """It was shown."""
    SELECT = "select"
    """It was taken."""
    SELECT_PART = "select_part"
    """Some of it was taken: a word, a line."""
    DISMISS = "dismiss"
    """It was rejected, or typed over."""
