"""The reason that stored refusals have instead of a limit's rule."""

from __future__ import annotations

FAIR_SHARE = "fair share of the pool"
"""A full pool refused the request because its organization exceeded its share."""
