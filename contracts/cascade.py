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
    """The comparison's id, for `slipstream evals show`."""
    measured: str
    """Digest of the compared configuration, see `contracts.cascade_digest`. The comparison is valid only for this
    configuration."""
    worst_difference: float = 0.0
    """Lower bound of the cascade's score minus the large model's score, on the slice where it is lowest; 0.01 is one
    point of 100."""


class Cascade(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Cascade of a chat model: the model that answers its requests first, for which requests, and the bar for its
    responses."""

    first: str
    """Name of the small model: another model of the chat tier, with its own pool, tokenizer and price."""
    when: Literal["always", "busy"] = "busy"
    """When the small model answers first: `always`, or only while requests for the large model wait for a slot or are
    shed (`busy`)."""
    min_confidence: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.7
    """Minimum geometric mean of the response's token probabilities, below which the response is discarded."""
    max_first_tokens: Annotated[int, msgspec.Meta(ge=1, le=8_192)] = 256
    """Maximum number of tokens that the small model may generate; a longer response is discarded."""
    max_prompt_tokens: Annotated[int, msgspec.Meta(ge=1)] = 4_096
    """Maximum length of a prompt for the small model. Longer prompts go directly to the large model."""
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=600)] = 10.0
    """Time limit of the small model's response, including the wait for a slot. After it, the response is discarded."""
    busy_after_s: Annotated[float, msgspec.Meta(ge=0, le=600)] = 0.5
    """With `busy`, the wait of a request for the large model after which the model counts as busy."""
    quality_margin: Annotated[float, msgspec.Meta(gt=0, le=0.2)] = 0.02
    """The quality budget: the amount by which the cascade may score below the large model on any slice; 0.01 is one
    point of 100."""
    approval: Approval | None = None
    """The comparison that the cascade has passed. Without one, or after a change of anything it compared, all
    customers' requests go to the large model, and the cascade answers only the deployment's own evals."""
