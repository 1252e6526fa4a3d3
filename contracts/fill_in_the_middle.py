"""How a model's gaps are laid out, filled and ended: `models[].fim`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

MinConfidence = Annotated[float, Meta(ge=0, lt=1)]
"""A geometric mean of tokens' probabilities, below which a completion is left out; 0 is off."""


class FillInTheMiddle(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What becomes of requests for the text at a cursor."""

    window: bool = True
    """A gap whose file does not fit is filled from a window around the cursor. false: such a request is refused."""
    healing: bool = True
    """The prompt of a gap ends before the word that the cursor is in, and the output is made to begin with what is
    typed of it (token healing), where the model has a `tokenizer`, a byte-level one, and its engines can: driver
    `embedded`."""
    warm_up: bool = True
    """After a gap was answered, its prompt as it will be once the completion is accepted and Enter pressed is computed
    while the replica has nothing else to do, unbilled. Takes effect where that saves much: with a tokenizer that lays
    the suffix out behind the prefix and the half-typed line behind both. false: nothing is computed ahead."""
    rendered: Literal["parse", "pass"] = "parse"
    """What becomes of a prompt that a client has laid out for a gap itself, with `<|fim_prefix|>` and its kind:
    `parse` lays the gap out anew as this model was trained, where it has a tokenizer that can; `pass` takes it as any
    other text, in which no control string steers the model."""
    supersede: bool = True
    """A newer keystroke ends the requests for the same gap that it was typed on: they are answered at once with what
    they have, and the engine is stopped. It takes a sign that somebody types: always so under `/infill` and with
    `segments`; under `/v1/completions` and the engines route where the client is a known editor (by its `User-Agent`)
    or `user` is named; under `/v1/fim/completions` and `/completion` where it is a known editor. false: each runs to
    its end."""
    lines: Literal["auto", "single", "free"] = "auto"
    """Where a gap's completion ends by the cursor's place, under `fim.rules`: `auto` decides between one line and a
    block from the text around the cursor and the language, `single` ends every completion with its line, `free` leaves
    it to the model."""
    rules: Literal["editors", "all"] = "editors"
    """Which gaps the stop rules and the file's own line ends hold for: those of editors' APIs (`/infill`,
    `/completion`, `/v1/fim/completions`, `segments`), or `all`: those under `/v1/completions` and the engines route
    too."""
    reuse: bool = True
    """A gap that a key asks for again while it is being filled shares that generation, and one that was typed on into
    what the model wrote is answered with the rest of it. false: the model is asked every time."""
    min_confidence: MinConfidence = 0.0
    """Least geometric mean of its tokens' probabilities that a completion needs to be shown, where the request does not
    say (`min_confidence`) and `fim.rules` hold for it; 0: every one is. Its pool's engines have to tell log
    probabilities."""
