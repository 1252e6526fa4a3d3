"""A user's action on a completion."""

from __future__ import annotations

from enum import StrEnum


class EventType(StrEnum):
    """A user's action on a completion."""

    VIEW = "view"
    """The editor showed it."""
    SELECT = "select"
    """The user accepted it."""
    SELECT_PART = "select_part"
    """The user accepted a part: a word, a line."""
    DISMISS = "dismiss"
    """The user rejected it or typed over it."""
