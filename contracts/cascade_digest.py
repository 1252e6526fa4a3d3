"""Digest of the configuration that a cascade's comparison measured: two models, their pools and the rules between them.

The digest leaves out aliases and replicas, because a fleet must be able to grow in a spike. Other weights change it:
they are served from another pool (a release) or under another engine model.
"""

from __future__ import annotations

import hashlib

import msgspec

from contracts.cascade import Cascade
from contracts.desired_state import DesiredState, Model


def measured(state: DesiredState, model: Model) -> str:
    """The digest for a model with a cascade, as 32 hexadecimal digits."""
    cascade = model.cascade
    assert cascade is not None
    first = state.model(cascade.first)
    parts = (_rules(cascade), *(_served(state, one) for one in (model, first) if one is not None))
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:32]


def approved(state: DesiredState, model: Model) -> bool:
    """Whether the cascade's responses may be served to customers."""
    cascade = model.cascade
    return cascade is not None and cascade.approval is not None and cascade.approval.measured == measured(state, model)


def _rules(cascade: Cascade) -> Cascade:
    """The rules that affect the response, without the rules that only decide when the cascade runs."""
    return Cascade(
        cascade.first,
        min_confidence=cascade.min_confidence,
        max_first_tokens=cascade.max_first_tokens,
        max_prompt_tokens=cascade.max_prompt_tokens,
    )


def _served(state: DesiredState, model: Model) -> tuple[object, ...]:
    pool = state.pool(model.pool)
    bare = msgspec.structs.replace(model, aliases=(), cascade=None, canary=None)
    return bare, None if pool is None else msgspec.structs.replace(pool, replicas=())
