"""A gap to fill, independent of the wire format, and the data for its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from contracts.fill_in_the_middle import MinConfidence
from gateway.wire.fill.stop_rules import StopRules
from gateway.wire.gap import Snippet

if TYPE_CHECKING:
    from gateway.wire.prepared import Prepared

AskedConfidence = MinConfidence | None
"""`min_confidence`, our own field in every API of gaps; None if the model's setting applies."""


class FillRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A format's decoded fields of a client's body. Line ends are the client's."""

    model: str
    """The name or alias that the client used."""
    prefix: str
    """All text before the cursor."""
    suffix: str
    """All text after the cursor."""
    snippets: tuple[Snippet, ...] = ()
    """Snippets in prompt order: a snippet that changes between keystrokes belongs last."""
    path: str = ""
    """Path of the file, as the client names it."""
    language: str = ""
    """The client's name for the language."""
    max_tokens: int | None = None
    """None for the default of fills."""
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    engine_parameters: dict[str, Any] | None = None
    """See `Sampling.engine_parameters`."""
    stream: bool = False
    include_usage: bool = False
    """Whether a stream ends with its usage."""
    session: str = ""
    """The client's name for its file or user; never sent to an engine."""
    rules: StopRules = StopRules()
    min_confidence: float | None = None
    """A completion whose tokens' probabilities have a lower geometric mean is replaced by an empty one; 0 for never.
    None for the model's `fim.min_confidence`."""
    typed: bool = True
    """Whether a user types: only editors use the API, or the client names a user. Scripts may send other requests."""
    warm_up: bool = False
    """Whether the request only puts its prompt into the cache: at most one token is generated, and none is returned."""


class Filled(msgspec.Struct, frozen=True, kw_only=True):
    """`Prepared.details` of a gap: the data from which a transcoder makes the answer."""

    rules: StopRules
    suffix: str
    """The part of the suffix in the prompt, with the model's line ends."""
    newline: str = "\n"
    r"""The file's line end. The model gets `\n`, and the client gets its own again."""
    truncated: bool = False
    """Whether the file did not fit, so that the prompt has a window of it."""
    min_confidence: float = 0.0
    """The effective threshold, from the request or its model; 0 for none."""
    opening: str = ""
    """The end of the prefix with which the output begins (`TextPrompt.begins_with`); engines do not report it."""
    warm_up: bool = False
    details: object = None
    """The format's own data, as passed to `prepare_fill`."""


def filled_of(prepared: Prepared) -> Filled:
    """The details that `prepare_fill` stored for the response."""
    assert isinstance(prepared.details, Filled)
    return prepared.details


def judged(details: object) -> bool:
    """Whether a gap's response needs a minimum confidence. details: `Prepared.details`."""
    return isinstance(details, Filled) and details.min_confidence > 0


def opening_of(details: object) -> str:
    """The part of the prefix with which a gap's output begins. details: `Prepared.details`."""
    return details.opening if isinstance(details, Filled) else ""
