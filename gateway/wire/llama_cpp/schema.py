"""llama.cpp's request bodies. Only this module knows llama.cpp's request field names.

docs/concepts/autocomplete-apis.md lists three kinds of fields. Most are honoured. Fields of `Ignored` are accepted
without effect, because clients always send them and they control a sampler or a slot that engines here do not have. A
few would change the response if they were ignored, and are refused unless they are off. Other fields are unknown and
refused by name.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from gateway.wire.fill.request import AskedConfidence

MAX_STOP = 16
MAX_EXTRA = 256
MAX_CHOICES = 16
MAX_FIELDS = 64

Text = Annotated[str, Meta(max_length=4_000_000)]
Temperature = Annotated[float, Meta(ge=0, le=2)]
TopP = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Seed = Annotated[int, Meta(ge=-1, le=2**63 - 1)]
Predict = Annotated[int, Meta(ge=-2, le=10_000_000)]
StopText = Annotated[str, Meta(max_length=1_024)]
TokenId = Annotated[int, Meta(ge=0, lt=2**31)]
Name = Annotated[str, Meta(max_length=1_024)]
Empty = Annotated[Any, Meta(extra_json_schema={"enum": [None, False, 0, "", [], {}]})]
"""See `REFUSED`."""


class InputExtra(msgspec.Struct):
    """A chunk of another file, or of a distant part of this one. Other fields (`time`) are not read."""

    text: Text
    filename: Name = ""


class Ignored(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Taken without effect."""

    adaptive_decay: Any = None
    adaptive_target: Any = None
    backend_sampling: Any = None
    cache_prompt: Any = None
    """Engines here always reuse cached prompts."""
    dry_allowed_length: Any = None
    dry_base: Any = None
    dry_multiplier: Any = None
    dry_penalty_last_n: Any = None
    dry_sequence_breakers: Any = None
    dynatemp_exponent: Any = None
    dynatemp_range: Any = None
    id_slot: Any = None
    """The router chooses the replica that holds most of the prompt."""
    lora: Any = None
    min_keep: Any = None
    min_p: Any = None
    mirostat: Any = None
    mirostat_eta: Any = None
    mirostat_tau: Any = None
    n_cache_reuse: Any = None
    n_discard: Any = None
    n_keep: Any = None
    penalize_nl: Any = None
    post_sampling_probs: Any = None
    repeat_last_n: Any = None
    repeat_penalty: Any = None
    return_progress: Any = None
    samplers: Any = None
    slot_id: Any = None
    t_max_prompt_ms: Any = None
    tfs_z: Any = None
    timings_per_token: Any = None
    top_k: Any = None
    top_n_sigma: Any = None
    typ_p: Any = None
    typical_p: Any = None
    xtc_probability: Any = None
    xtc_threshold: Any = None
    speculative_n_max: Any = msgspec.field(default=None, name="speculative.n_max")
    speculative_n_min: Any = msgspec.field(default=None, name="speculative.n_min")
    speculative_p_min: Any = msgspec.field(default=None, name="speculative.p_min")


class Common(Ignored, forbid_unknown_fields=True, kw_only=True):
    """Fields that both endpoints honour."""

    model: Annotated[str, Meta(max_length=256)] = ""
    """Empty for the first autocomplete model that the key may use; these clients seldom know models."""
    n_predict: Predict | None = None
    """Negative for as many tokens as the model's default allows; 0 to compute the prompt and answer nothing."""
    max_tokens: Predict | None = None
    """llama.cpp's other name for `n_predict`."""
    n_cmpl: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    """llama.cpp's other name for `n_cmpl`."""
    n_indent: Annotated[int, Meta(ge=0, le=1_000)] = 0
    temperature: Temperature | None = None
    top_p: TopP | None = None
    seed: Seed | None = None
    """-1 for a random seed."""
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    stop: Annotated[list[StopText], Meta(max_length=MAX_STOP)] | None = None
    stream: bool | None = None
    t_max_predict_ms: Annotated[float, Meta(le=3_600_000)] = 0.0
    """No limit if not above 0."""
    min_confidence: AskedConfidence = None
    """Our own field, for gaps: a completion whose tokens' probabilities have a lower geometric mean is empty. A stream
    is then sent at once, at its end."""
    response_fields: Annotated[list[Name], Meta(max_length=MAX_FIELDS)] | None = None
    grammar: Empty = None
    ignore_eos: Empty = None
    image_data: Empty = None
    json_schema: Empty = None
    logit_bias: Empty = None
    n_probs: Empty = None
    return_tokens: Empty = None
    system_prompt: Empty = None


class InfillRequest(Common, forbid_unknown_fields=True, kw_only=True):
    """POST /infill."""

    input_prefix: Text
    """The lines above the cursor."""
    input_suffix: Text
    """Text after the cursor."""
    prompt: Text = ""
    """The cursor's line, up to the cursor."""
    input_extra: Annotated[list[InputExtra], Meta(max_length=MAX_EXTRA)] | None = None


class LlamaCompletionRequest(Common, forbid_unknown_fields=True, kw_only=True):
    """POST /completion."""

    prompt: Text | Annotated[list[TokenId], Meta(min_length=1)]
    """Text, which may be a rendered gap of any family, or token ids."""


REFUSED = (
    "grammar",
    "ignore_eos",
    "image_data",
    "json_schema",
    "logit_bias",
    "n_probs",
    "return_tokens",
    "system_prompt",
)
"""Fields that would change the answer's content; refused unless they are empty or off."""
