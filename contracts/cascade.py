"""A small model that answers some of a large model's requests first, and the conditions for serving its responses.

The small model's response is held back until it is complete, judged by the model's confidence, and then served or
discarded; if it is discarded, the large model answers. Customers get the small model's responses only after a
comparison of the two models has passed.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec


class Approval(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A comparison that a cascade has passed."""

    comparison: str
    """Its id: `slipstream evals show`."""
    measured: str
    """Digest of the compared configuration, see `contracts.cascade_digest`: the comparison is valid for no other."""
    worst_difference: float = 0.0
    """Lower bound of the cascade's score minus the large model's, on the slice where that is lowest; 0.01 is one point
    of 100."""


class Cascade(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Cascade of a chat model: the model that answers its requests first, for which requests, and the bar for its
    responses."""

    first: str
    """The small model's name: another one of the chat tier, with pools, tokenizer and price of its own."""
    when: Literal["always", "busy"] = "busy"
    """`always`, or `busy`: only while requests for the large model wait for a slot or are shed."""
    min_confidence: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.7
    """Geometric mean of the probabilities of the response's tokens, below which it is discarded."""
    max_first_tokens: Annotated[int, msgspec.Meta(ge=1, le=8_192)] = 256
    """Most tokens of the small model; a longer response is discarded."""
    max_prompt_tokens: Annotated[int, msgspec.Meta(ge=1)] = 4_096
    """Longer prompts go straight to the large model."""
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=600)] = 10.0
    """A response that has not ended by then is discarded; waiting for a slot at the small model counts."""
    busy_after_s: Annotated[float, msgspec.Meta(ge=0, le=600)] = 0.5
    """With `busy`: the large model counts as busy when one of its requests waits longer than this."""
    quality_margin: Annotated[float, msgspec.Meta(gt=0, le=0.2)] = 0.02
    """The quality budget: how much lower the cascade may score than the large model on any slice; 0.01 is one point of
    100."""
    approval: Approval | None = None
    """The comparison that the cascade has passed. Without one, or after a change of anything it compared, all
    customers' requests go to the large model, and the cascade answers only the deployment's own evals."""
