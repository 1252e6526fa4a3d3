"""Holds the request to a small model, which is tried before the request's own model."""

from __future__ import annotations

from typing import NamedTuple

from contracts.cascade import Cascade
from gateway.wire.prepared import Prepared, Target


class First(NamedTuple):
    """The request, rendered with the small model's template, counted by its tokenizer and limited by the rules."""

    cascade: Cascade
    target: Target
    prepared: Prepared
    capped: bool
    """Whether its output limit is below the client's, so that a response that ends at this limit is incomplete."""
