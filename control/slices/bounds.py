"""Bounds of a run's settings."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

MAX_ITEMS = 100_000
"""The most items of one slice in one run."""
Margin = Annotated[float, Meta(gt=0, lt=1)]
Items = Annotated[int, Meta(ge=1, le=MAX_ITEMS)]
