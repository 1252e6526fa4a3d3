"""Settings for the layout, filling and end of a model's gaps: `models[].fim`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from contracts.client_family import ClientFamily

MinConfidence = Annotated[float, Meta(ge=0, lt=1)]
"""Geometric mean of the token probabilities below which a completion is withheld; 0 turns the check off."""
Healing = Literal["word", "tokens"]
"""The part of a half-typed word that is generated again: all of its typed characters, or, in an engine that a grammar
forces, only the last tokens with which a longer token begins."""


class FillInTheMiddle(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Handling of requests for the text at a cursor."""

    window: bool = True
    """Whether a gap in a file that does not fit the context is filled from a window around the cursor. false: such a
    request is refused."""
    healing: bool = True
    """Whether half-typed words are completed by token healing: the prompt ends before the word at the cursor, and the
    output is forced to begin with the typed part of that word. This requires a byte-level `tokenizer` of the model and
    the driver `embedded`, `sglang` or `vllm`."""
    typed_line: Literal["auto", "before_middle", "after_middle"] = "auto"
    """Position of the half-typed line in a gap's prompt. `before_middle` puts it into the prefix, as most models learnt
    it. `after_middle` puts it at the prompt's end, so that a keystroke changes only the end and the engine recomputes
    little. `auto` uses `fim_typed_line` from the tokenizer's folder, or `before_middle` if the folder does not set it.
    `after_middle` needs a `tokenizer` with a middle token and engines that accept token ids (all drivers except
    `openai`). Compare completions first: weights that never learnt it mistake the line for their own output."""
    warm_up: bool = True
    """Whether an idle replica that has answered a gap prefetches the prompt that follows if the user accepts the
    completion and presses Enter. The prefetch is not billed. It takes effect only where it saves much: with a tokenizer
    that puts the suffix after the prefix and the half-typed line after both."""
    rendered: Literal["parse", "pass"] = "parse"
    """Handling of a prompt in which the client has laid out a gap itself, with `<|fim_prefix|>` or similar tokens,
    under `/v1/completions`, the engines route and `/completion`. `parse` lays out the gap again in the form that this
    model was trained on, if its tokenizer has one. `pass` treats the prompt as ordinary text, in which no control token
    has an effect."""
    supersede: bool = True
    """Whether a newer keystroke supersedes earlier requests for the same gap. They then end at once with the text so
    far, and the engine stops. This applies only to requests of a person who types: to all requests under `/infill` and
    with `segments`; under `/v1/completions` and the engines route to those of known editors (by `User-Agent`) and those
    with `user`; under `/v1/fim/completions` and `/completion` to those of known editors. false: each request runs to
    its end."""
    lines: Literal["auto", "single", "free"] = "auto"
    """Where a gap's completion ends, if `fim.rules` applies. `auto` chooses between one line and a block by the text
    around the cursor and the language; `single` ends every completion at the end of its line; `free` leaves it to the
    model."""
    rules: Literal["editors", "all"] = "editors"
    """Gaps to which the stop rules and the file's own line endings apply. They always apply to editors' APIs
    (`/infill`, `/completion`, `/v1/fim/completions`, `segments`). Under `/v1/completions` and the engines route,
    `editors` limits them to known editors (by `User-Agent` or `x-slipstream-client`); `all` extends them to every
    client."""
    reuse: bool = True
    """Whether requests of the same key reuse generations. A request for a gap that is already being filled shares its
    generation, and a user who types the text that the model has generated gets the rest of it. false: an engine
    generates every completion."""
    min_confidence: MinConfidence | Literal["auto"] = "auto"
    """Minimum geometric mean of a completion's token probabilities, below which the completion is withheld; 0 shows
    all. It applies under `fim.rules` to requests without `min_confidence`, and requires engines that report log
    probabilities. `auto`: `fim_min_confidence` from the tokenizer's folder, which the shipped model has, otherwise 0.
    """
    min_confidence_by_client: dict[ClientFamily, MinConfidence] = {}
    """Values by kind of client that replace `min_confidence`: `{ zed = 0.3, continue = 0.2 }`."""

    def min_confidence_of(self, client: ClientFamily, folders: float) -> float:
        """The threshold for a request that sets none. folders: the value that `auto` has for the tokenizer's folder."""
        threshold = self.min_confidence_by_client.get(client, self.min_confidence)
        return folders if threshold == "auto" else threshold
