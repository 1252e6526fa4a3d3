"""Decides which request parameters a pool may pass to its engines, and which variables a chat template may have.

A parameter that sets how a request is counted, ordered, cached or connected belongs to the gateway: with its own value,
a tenant could read other tenants' caches, overtake their requests, or generate more than was reserved.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Annotated

import msgspec
from msgspec import Meta

from contracts.errors import ConfigError, InvalidField

TemplateValue = bool | Annotated[int, Meta(ge=-(10**9), le=10**9)] | float | Annotated[str, Meta(max_length=256)]
MIN_PENALTY = 0.01
"""Lower bound of `repetition_penalty`, which divides logits: a value near 0 makes them infinite and their probabilities
NaN. An engine then picks any token, even against a grammar, or exits."""
NO_EFFORT = "none"
"""The `reasoning_effort` that turns thinking off."""
NOT_THINKING: Mapping[str, TemplateValue] = MappingProxyType({"enable_thinking": False, "thinking": False})
"""The variables by which templates turn thinking off; a template has one or the other."""
MAX_VARIABLES = 16
MAX_PARAMETERS = 64
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_WITHHELD_PREFIXES = ("bootstrap_", "disagg", "kv_", "ec_transfer", "return_", "routed_", "internal_", "session_")
WITHHELD = frozenset(
    {
        # the model, the prompt and the form of the response
        "model", "messages", "prompt", "suffix", "tools", "input", "input_ids", "input_embeds", "prompt_embeds",
        "prompt_token_ids", "stream", "stream_options", "stream_interval", "detokenize", "echo", "extra_body",
        # the amount of output
        "n", "best_of", "max_tokens", "max_completion_tokens", "max_new_tokens", "max_output_tokens", "max_length",
        "n_predict", "num_predict", "n_cmpl", "use_beam_search", "beam_width", "prediction", "prompt_logprobs",
        "web_search_options", "audio", "background",
        # order, identity and caches
        "priority", "rid", "request_id", "cache_salt", "extra_key", "cache_prompt", "id_slot", "slot_id",
        "data_parallel_rank", "conversation_params", "start_within_s", "agent_hierarchy", "truncate_prompt_tokens",
        # weights, and programs that run in the engine
        "lora", "lora_path", "lora_request", "custom_logit_processor", "custom_params", "logits_processors",
        "vllm_xargs", "chat_template", "stop_regex", "speculation", "begins_with", "ngram_corpus_id",
    }
)  # fmt: skip
"""Parameters that no pool passes on."""
RESERVED_VARIABLES = frozenset(
    {
        "messages", "tools", "documents", "conversation", "chat_template", "tokenize", "padding", "truncation",
        "max_length", "add_generation_prompt", "continue_final_message", "tokenizer", "raise_exception",
        "strftime_now", "processor", "processor_kwargs", "tokenizer_kwargs", "conversations", "self",
        "sanitize_control_tokens", "load_audio_from_video", "return_dict", "return_tensors",
        "return_assistant_tokens_mask", "namespace", "range", "dict", "cycler", "joiner", "lipsum",
    }
)  # fmt: skip
"""Variables that engines set for a template or its renderer, and Jinja's own functions."""


def may_pass(name: str) -> bool:
    """Whether a pool may pass a parameter of this name."""
    return bool(_NAME.fullmatch(name)) and name not in WITHHELD and not name.startswith(_WITHHELD_PREFIXES)


def check_passed(names: Collection[str], field: str) -> None:
    """Raise ConfigError, which names `field`, unless a pool may pass all these parameters."""
    if len(names) > MAX_PARAMETERS:
        raise ConfigError(f"{field}: {len(names)} names; at most {MAX_PARAMETERS} are allowed", param=field)
    for name in names:
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{field}: {name[:80]!r}; a name consists of up to 64 letters, digits and _",
                param=field,
            )
        if not may_pass(name):
            raise ConfigError(
                f"{field}: {name!r} may be set only by the gateway, because it determines how a request is served, "
                "counted or cached; remove it",
                param=field,
            )


def template_variables(given: object, param: str) -> dict[str, TemplateValue]:
    """The validated template variables of a request or a model. Raises InvalidField."""
    try:
        variables = msgspec.convert(given, dict[str, TemplateValue])
    except msgspec.ValidationError:
        raise InvalidField(
            f"'{param}' must be an object of booleans, numbers and strings of at most 256 characters, such as "
            f'{{"enable_thinking": false}}.',
            param=param,
        ) from None
    if len(variables) > MAX_VARIABLES:
        raise InvalidField(
            f"'{param}' has {len(variables)} variables; at most {MAX_VARIABLES} are allowed.", param=param
        )
    for name in variables:
        if not _NAME.fullmatch(name) or name in RESERVED_VARIABLES or name.startswith("_") or name.endswith("_token"):
            raise InvalidField(
                f"'{param}.{name[:80]}' is not a variable of the template: the engine sets it, or it is not a "
                "valid name. Leave it out.",
                param=param,
            )
    return variables


def check_variables(variables: Mapping[str, TemplateValue], field: str) -> None:
    """Raise ConfigError for a model's default that no client could send."""
    try:
        template_variables(dict(variables), field)
    except InvalidField as error:
        raise ConfigError(f"{field}: {error.message}", param=field) from None
