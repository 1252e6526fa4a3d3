"""A gap to fill, whichever format it came in, and what the answer to it needs to know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from contracts.fill_in_the_middle import MinConfidence
from gateway.wire.fill.stop_rules import StopRules
from gateway.wire.gap import Snippet

if TYPE_CHECKING:
    from gateway.wire.prepared import Prepared

AskedConfidence = MinConfidence | None
"""Our own field in every API of gaps, `min_confidence`; None: the request does not say, its model's setting holds."""


class FillRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A format's decoded fields of a client's body. Line ends are the client's."""

    model: str
    """The name or alias the client used."""
    prefix: str
    """All text before the cursor."""
    suffix: str
    """All text after the cursor."""
    snippets: tuple[Snippet, ...] = ()
    """In prompt order: a snippet that changes between keystrokes belongs last."""
    path: str = ""
    """Path of the file, as the client names it."""
    language: str = ""
    """The client's name for the language."""
    max_tokens: int | None = None
    """None: the default of fills."""
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    engine_parameters: dict[str, Any] | None = None
    """See `Sampling.engine_parameters`."""
    stream: bool = False
    include_usage: bool = False
    """A stream ends with its usage."""
    session: str = ""
    """The client's name for its file or user; never sent to an engine."""
    rules: StopRules = StopRules()
    min_confidence: float | None = None
    """A completion whose tokens' probabilities have a lower geometric mean is replaced by an empty one; 0: never. None:
    the model's `fim.min_confidence`."""
    typed: bool = True
    """Only editors use its API, or its client names a user; scripts may send any other request."""
    warm_up: bool = False
    """Only the prompt is wanted in the cache: at most one token is generated, and none is returned."""


class Filled(msgspec.Struct, frozen=True, kw_only=True):
    """`Prepared.details` of a gap: what a transcoder needs to make the answer."""

    rules: StopRules
    suffix: str
    """The part of the suffix in the prompt, with the model's line ends."""
    newline: str = "\n"
    r"""The file's line end: the model is shown `\n` and the client reads its own again."""
    truncated: bool = False
    """The file did not fit: the prompt has a window of it."""
    min_confidence: float = 0.0
    """The effective threshold, the request's or its model's; 0: none."""
    opening: str = ""
    """The end of the prefix with which the output begins (`TextPrompt.begins_with`); engines do not report it."""
    warm_up: bool = False
    details: object = None
    """The format's own, as `prepare_fill` was given it."""


def filled_of(prepared: Prepared) -> Filled:
    """The details that `prepare_fill` left for the response."""
    assert isinstance(prepared.details, Filled)
    return prepared.details


def judged(details: object) -> bool:
    """Whether a gap's response needs a minimum confidence. details: `Prepared.details`."""
    return isinstance(details, Filled) and details.min_confidence > 0


def opening_of(details: object) -> str:
    """The part of the prefix with which a gap's output begins. details: `Prepared.details`."""
    return details.opening if isinstance(details, Filled) else ""
