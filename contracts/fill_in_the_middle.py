"""How a model's gaps are laid out, filled and ended: `models[].fim`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from contracts.client_family import ClientFamily

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
    typed_line: Literal["auto", "before_middle", "after_middle"] = "auto"
    """Where the half-typed line stands in a gap's prompt: in the prefix, `before_middle`, as most models learnt it; or
    `after_middle`, so that a keystroke changes the prompt's end alone and the engine computes little of it again.
    `auto` is as the tokenizer's folder says (`fim_typed_line`), else before. `after_middle` needs a `tokenizer` with a
    middle token and engines that take token ids (all drivers but `openai`); compare completions first, for weights that
    never learnt it take the line for their own output."""
    warm_up: bool = True
    """After a gap was answered, its prompt as it will be once the completion is accepted and Enter pressed is computed
    while the replica has nothing else to do, unbilled. Takes effect where that saves much: with a tokenizer that lays
    the suffix out behind the prefix and the half-typed line behind both. false: nothing is computed ahead."""
    rendered: Literal["parse", "pass"] = "parse"
    """What becomes of a prompt that a client has laid out for a gap itself, with `<|fim_prefix|>` and its kind, under
    `/v1/completions`, the engines route and `/completion`:
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
    `/completion`, `/v1/fim/completions`, `segments`), and under `/v1/completions` and the engines route those of known
    editors (by `User-Agent` or `x-slipstream-client`); or `all`: whoever asks there."""
    reuse: bool = True
    """A gap that a key asks for again while it is being filled shares that generation, and one that was typed on into
    what the model wrote is answered with the rest of it. false: the model is asked every time."""
    min_confidence: MinConfidence | Literal["auto"] = "auto"
    """Least geometric mean of its tokens' probabilities that a completion needs to be shown, where the request does not
    say (`min_confidence`) and `fim.rules` hold for it; 0: every one is. Its pool's engines have to tell log
    probabilities. `auto` is as the tokenizer's folder says (`fim_min_confidence`, which the shipped model has), else
    0."""
    min_confidence_by_client: dict[ClientFamily, MinConfidence] = {}
    """The same for requests of one kind of client, in place of `min_confidence`: `{ zed = 0.3, continue = 0.2 }`."""

    def min_confidence_of(self, client: ClientFamily, folders: float) -> float:
        """Where the request does not say. folders: what `auto` is."""
        least = self.min_confidence_by_client.get(client, self.min_confidence)
        return folders if least == "auto" else least
