"""The reason that stored refusals have in place of a limit's rule."""

from __future__ import annotations

FAIR_SHARE = "fair share of the pool"
"""A full pool refused the request, because its organization asked for more than its share."""
