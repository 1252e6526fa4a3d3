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
    """A gap whose file does not fit is filled from a window around the cursor. false: such a request is refused."""
    healing: bool = True
    """The prompt of a gap ends before the word that the cursor is in, and the output is forced to begin with the typed
    part of it (token healing). Requires a byte-level `tokenizer` of the model and the driver `embedded`, `sglang` or
    `vllm`."""
    typed_line: Literal["auto", "before_middle", "after_middle"] = "auto"
    """Position of the half-typed line in a gap's prompt: in the prefix, `before_middle`, as most models learnt it; or
    `after_middle`, so that a keystroke changes only the prompt's end and the engine recomputes little. `auto` follows
    the tokenizer's folder (`fim_typed_line`), else before. `after_middle` needs a `tokenizer` with a middle token and
    engines that take token ids (all drivers but `openai`); compare completions first, because weights that never learnt
    it take the line for their own output."""
    warm_up: bool = True
    """After a gap was answered, the replica prefetches the gap's next prompt while it is idle, unbilled: the prompt
    after the completion is accepted and Enter pressed. It takes effect where that saves much: with a tokenizer that
    puts the suffix after the prefix and the half-typed line after both. false: no prefetch."""
    rendered: Literal["parse", "pass"] = "parse"
    """Handling of a prompt in which the client has laid out a gap itself, with `<|fim_prefix|>` and its kind, under
    `/v1/completions`, the engines route and `/completion`. `parse` lays the gap out again as this model was trained,
    where it has a tokenizer that can; `pass` takes it as any other text, in which no control string steers the
    model."""
    supersede: bool = True
    """A newer keystroke supersedes earlier requests for the same gap: they end at once with the text so far, and the
    engine stops. This needs a sign that a person types: always so under `/infill` and with `segments`; under
    `/v1/completions` and the engines route where the client is a known editor (by its `User-Agent`) or `user` is named;
    under `/v1/fim/completions` and `/completion` where it is a known editor. false: each runs to its end."""
    lines: Literal["auto", "single", "free"] = "auto"
    """Where a gap's completion ends, by the cursor's position, under `fim.rules`: `auto` decides between one line and a
    block from the text around the cursor and the language, `single` ends every completion with its line, `free` leaves
    it to the model."""
    rules: Literal["editors", "all"] = "editors"
    """Gaps to which the stop rules and the file's own line ends apply: those of editors' APIs (`/infill`,
    `/completion`, `/v1/fim/completions`, `segments`), and under `/v1/completions` and the engines route those of known
    editors (by `User-Agent` or `x-slipstream-client`); or `all`: every client there."""
    reuse: bool = True
    """A request of the same key for a gap that is being filled shares that generation. A gap whose user has typed the
    model's own text gets the rest of it. false: every request is generated."""
    min_confidence: MinConfidence | Literal["auto"] = "auto"
    """Least geometric mean of a completion's token probabilities for it to be shown, where the request does not set it
    (`min_confidence`) and `fim.rules` apply; 0: all are shown. Its pool's engines must report log probabilities.
    `auto`: the value in the tokenizer's folder (`fim_min_confidence`, which the shipped model has), else 0."""
    min_confidence_by_client: dict[ClientFamily, MinConfidence] = {}
    """The same for requests of one kind of client, in place of `min_confidence`: `{ zed = 0.3, continue = 0.2 }`."""

    def min_confidence_of(self, client: ClientFamily, folders: float) -> float:
        """The threshold for a request that sets none. folders: the value that `auto` has for the tokenizer's folder."""
        threshold = self.min_confidence_by_client.get(client, self.min_confidence)
        return folders if threshold == "auto" else threshold
