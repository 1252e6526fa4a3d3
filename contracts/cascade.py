"""A small model that answers some of a large one's requests first, and when what it answers may be given to customers.

The small model's answer is held back until it is whole, judged by how sure the model was, and then given or thrown
away; what is thrown away the large model answers. Customers get it only once a comparison of the two has passed.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec


class Approval(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A comparison that a cascade has passed."""

    comparison: str
    """Its id: `slipstream evals show`."""
    measured: str
    """Digest of what was compared, as `contracts.cascade_digest` makes it: of anything else it says nothing."""
    worst_difference: float = 0.0
    """Lower bound of the cascade's score minus the large model's, on the slice where that is lowest; 0.01 is a point of
    100."""


class Cascade(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Of a chat model: which model answers its requests first, which of them, and what is good enough."""

    first: str
    """The small model's name: another one of the chat tier, with pools, tokenizer and price of its own."""
    when: Literal["always", "busy"] = "busy"
    """`always`; or only while requests for the large model wait for a place or are turned away."""
    min_confidence: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.7
    """Geometric mean of the probabilities of the answer's tokens, below which it is thrown away."""
    max_first_tokens: Annotated[int, msgspec.Meta(ge=1, le=8_192)] = 256
    """The small model writes no more than this; an answer that is longer is thrown away."""
    max_prompt_tokens: Annotated[int, msgspec.Meta(ge=1)] = 4_096
    """Longer prompts go straight to the large model."""
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=600)] = 10.0
    """An answer that has not ended by then is thrown away; a wait for a place at the small model counts."""
    busy_after_s: Annotated[float, msgspec.Meta(ge=0, le=600)] = 0.5
    """With `busy`: a request for the large model that waits longer than this says that it is busy."""
    quality_margin: Annotated[float, msgspec.Meta(gt=0, le=0.2)] = 0.02
    """The quality budget: how much worse the cascade may score than the large model on any slice, as a part of 1."""
    approval: Approval | None = None
    """Which comparison it passed. Without one, or once anything it compared is changed, customers' requests all go to
    the large model, and only the deployment's own evals are answered by the cascade."""
