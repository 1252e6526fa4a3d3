"""A gap to fill, whichever format it came in, and what the answer to it needs to know."""

from __future__ import annotations

import msgspec

from contracts.fill_in_the_middle import MinConfidence
from gateway.wire.fill.stop_rules import StopRules
from gateway.wire.gap import Snippet

AskedConfidence = MinConfidence | None
"""Our own field in every API of gaps, `min_confidence`; None: the request does not say, its model's setting holds."""


class FillRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a format has read out of a client's body. Line ends are as the client wrote them."""

    model: str
    """The name or alias the client used."""
    prefix: str
    """All text before the cursor."""
    suffix: str
    """All text behind it."""
    snippets: tuple[Snippet, ...] = ()
    """In the order in which they shall stand: one that changes between keystrokes belongs last."""
    path: str = ""
    """Of the file, as the client names it."""
    language: str = ""
    """As the client names it."""
    max_tokens: int | None = None
    """None: the default of fills."""
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stream: bool = False
    include_usage: bool = False
    """A stream ends with what it used."""
    session: str = ""
    """What the client names its file or user by; never sent to an engine."""
    rules: StopRules = StopRules()
    min_confidence: float | None = None
    """A completion whose tokens' probabilities have a lower geometric mean is empty instead; 0: none is. None: as the
    model's `fim.min_confidence` says."""
    typed: bool = True
    """Its API is one that editors alone speak, or its client names a user; else scripts may ask so too."""
    warm_up: bool = False
    """Only the prompt is wanted in the cache: at most one token is generated, and none is answered with."""


class Filled(msgspec.Struct, frozen=True, kw_only=True):
    """`Prepared.details` of a gap: what a transcoder needs to make the answer."""

    rules: StopRules
    suffix: str
    """What of it the model was shown, with the model's line ends."""
    newline: str = "\n"
    r"""The file's line end: the model is shown `\n` and the client reads its own again."""
    truncated: bool = False
    """The file did not fit: the model was shown a window of it."""
    min_confidence: float = 0.0
    """What holds for it, the request's or its model's; 0: none."""
    opening: str = ""
    """The end of the prefix that the output begins with (`TextPrompt.begins_with`); engines do not tell it."""
    warm_up: bool = False
    details: object = None
    """The format's own, as `prepare_fill` was given it."""


def judged(details: object) -> bool:
    """Whether a gap's answer has to be sure enough to be shown. details: `Prepared.details`."""
    return isinstance(details, Filled) and details.min_confidence > 0


def opening_of(details: object) -> str:
    """What of the prefix a gap's output begins with. details: `Prepared.details`."""
    return details.opening if isinstance(details, Filled) else ""
