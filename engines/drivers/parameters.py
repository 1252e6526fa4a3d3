"""Parameters of engines' own APIs that a client may send, by driver, with their allowed values.

The lists exclude parameters that OpenAI's API has under the same name, and parameters that the gateway reads itself
(`min_tokens`, `ignore_eos`). `engines/drivers/openai_body.py` writes them; `gateway/wire/openai/engine_parameters.py`
reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from contracts.engine_parameters import MIN_PENALTY

CHAT_TEMPLATE_KWARGS = "chat_template_kwargs"
STOP_TOKEN_IDS = "stop_token_ids"


class Parameter(msgspec.Struct, frozen=True):
    """One parameter."""

    kind: Any = Any
    """The type of its value, in msgspec's notation."""
    allowed: str = ""
    """The type in words; empty for any JSON value, which the engine validates."""
    chat_only: bool = False
    """Whether only chat completions have it."""


_FLAG = Parameter(bool, "true or false")
_CHAT_FLAG = Parameter(bool, "true or false", chat_only=True)
_SAMPLING: dict[str, Parameter] = {
    "top_k": Parameter(Annotated[int, Meta(ge=-1, le=2**30)], "an integer of at least 1; -1 and 0 mean every token"),
    "min_p": Parameter(Annotated[float, Meta(ge=0, le=1)], "a number from 0 to 1"),
    "repetition_penalty": Parameter(Annotated[float, Meta(ge=MIN_PENALTY, le=2)], f"a number from {MIN_PENALTY} to 2"),
    STOP_TOKEN_IDS: Parameter(
        Annotated[list[Annotated[int, Meta(ge=0, lt=2**31)]], Meta(max_length=64)], "at most 64 token ids"
    ),
}
_TEMPLATE = {CHAT_TEMPLATE_KWARGS: Parameter(dict[str, Any], "an object", chat_only=True)}

EMBEDDED: Mapping[str, Parameter] = MappingProxyType({**_SAMPLING, **_TEMPLATE})
SGLANG: Mapping[str, Parameter] = MappingProxyType(
    {
        **_SAMPLING,
        **_TEMPLATE,
        "skip_special_tokens": _FLAG,
        "no_stop_trim": _FLAG,
        "separate_reasoning": _CHAT_FLAG,
    }
)
TENSORRT_LLM: Mapping[str, Parameter] = MappingProxyType(
    {
        **_SAMPLING,
        **_TEMPLATE,
        "skip_special_tokens": _FLAG,
        "spaces_between_special_tokens": _FLAG,
        "include_stop_str_in_output": _FLAG,
    }
)
VLLM: Mapping[str, Parameter] = MappingProxyType({**TENSORRT_LLM, "include_reasoning": _CHAT_FLAG})
LLAMA_CPP: Mapping[str, Parameter] = MappingProxyType(
    {**{name: _SAMPLING[name] for name in ("top_k", "min_p")}, **_TEMPLATE}
)
KNOWN: Mapping[str, Parameter] = MappingProxyType({**EMBEDDED, **SGLANG, **TENSORRT_LLM, **VLLM})
"""Parameters of all drivers; a pool's own list is checked against them."""


def with_passed(own: Mapping[str, Parameter], names: tuple[str, ...]) -> Mapping[str, Parameter]:
    """A driver's parameters with the additional ones that a pool passes (`Pool.engine_parameters`)."""
    return MappingProxyType({**{name: KNOWN.get(name, Parameter()) for name in names}, **own})
