"""The request to a small model before a request's own model."""

from __future__ import annotations

from typing import NamedTuple

from contracts.cascade import Cascade
from gateway.wire.prepared import Prepared, Target


class First(NamedTuple):
    """The same request to the small model: counted by its tokenizer, laid out by its template, cut to the rules."""

    cascade: Cascade
    target: Target
    prepared: Prepared
    capped: bool
    """Its output limit is below the client's: a response that ends at this limit is incomplete."""
