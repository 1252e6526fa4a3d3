"""The request bodies that the engine accepts. A field that is not defined here is refused by name."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from contracts.engine_parameters import MIN_PENALTY
from contracts.errors import InvalidField, InvalidJson, MissingField, RequestError, UnknownField, UnsupportedField
from contracts.misfit import missing_field, sentence_and_path, shortened, unknown_field
from engines.embedded.tools.choice import NamedChoice, Tool

Count = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Stop = Annotated[str, Meta(min_length=1, max_length=1024)]
BodyT = TypeVar("BodyT")
OPENAI_ONLY = frozenset(
    {"audio", "function_call", "functions", "modalities", "moderation", "prediction", "store"}
    | {"prompt_cache_options", "prompt_cache_retention", "service_tier", "verbosity", "web_search_options"}
)
"""Fields that would change the response of OpenAI's API, and which this engine does not support."""


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a stream."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class JsonSchema(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"schema_": "schema"}):
    """A named schema, which is enforced even if `strict` is false."""

    name: str
    schema_: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The form of the output."""

    type: str
    json_schema: JsonSchema | None = None


class SamplingFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Fields that chat and completions share; those from `rid` on are SGLang's or ours."""

    model: str
    max_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=100)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    n: Count | None = None
    stop: Stop | Annotated[list[Stop], Meta(max_length=32)] | None = None
    """The client's stop texts, and those that the gateway adds for a model's family."""
    seed: int | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    logit_bias: dict[str, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    user: str | None = None
    """Accepted and ignored, like the next two fields, which do not change OpenAI's responses either."""
    metadata: dict[str, str] | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    """A hint that the prefix cache does not need."""

    rid: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    priority: Annotated[int, Meta(ge=-(2**30), le=2**30)] | None = None
    cache_salt: str | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**30)] | None = None
    min_p: Share | None = None
    repetition_penalty: Annotated[float, Meta(ge=MIN_PENALTY, le=2)] | None = None
    ignore_eos: bool | None = None
    stop_token_ids: list[int] | None = None
    min_tokens: Annotated[int, Meta(ge=0)] | None = None
    """Before this many tokens, no id ends the text; stop texts do, and so does a format that allows nothing more."""
    start_within_s: Annotated[float, Meta(gt=0)] | None = None
    """Our own field: a request that waits longer than this for a slot or memory is refused with 503."""
    speculation: bool | None = None
    """Our own field: false turns drafts off for this request, which does not change its text."""
    return_spec_tokens_details: bool | None = None
    """Add to the usage the numbers of drafted and accepted tokens, and the timing."""
    lora_path: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    """The name of a loaded adapter, under SGLang's field name; None for the model alone."""
    json_schema: str | dict[str, Any] | None = None
    regex: str | None = None
    ebnf: str | None = None


class ChatBody(SamplingFields, frozen=True, kw_only=True):
    """POST /v1/chat/completions"""

    messages: Annotated[list[dict[str, Any]], Meta(min_length=1)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    """Only `none`, which turns thinking off with the template's variables."""
    chat_template_kwargs: dict[str, Any] | None = None
    """SGLang's field of variables for the chat template."""


class CompletionBody(SamplingFields, frozen=True, kw_only=True):
    """POST /v1/completions"""

    prompt: str | list[Any]
    """Text, texts, token ids or lists of them; its type is checked where it is encoded."""
    max_tokens: Annotated[int, Meta(ge=0)] | None = None
    """0 is allowed only with `echo`, for the likelihood of the prompt."""
    suffix: str | None = None
    begins_with: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None
    """Our own field: the output begins with this text, which counts as tokens but is not part of the response."""
    echo: bool | None = None
    best_of: Count | None = None
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None


class AbortBody(msgspec.Struct, frozen=True):
    """POST /abort_request"""

    rid: str = ""
    abort_all: bool = False


class LoadAdapterBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /load_lora_adapter"""

    lora_name: Annotated[str, Meta(min_length=1, max_length=256)]
    lora_path: Annotated[str, Meta(min_length=1, max_length=4096)]
    """A folder in PEFT's format, on this engine's machine."""
    pinned: bool = False
    """SGLang's field, without effect here: an adapter in use is never evicted, and any other may be."""


class UnloadAdapterBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /unload_lora_adapter"""

    lora_name: Annotated[str, Meta(min_length=1, max_length=256)]


def decode_body(data: bytes, kind: type[BodyT]) -> BodyT:
    """Decode and check a body. Raises InvalidJson, UnknownField, MissingField or InvalidField, naming the field."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise _field_error(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidJson(f"The body is not JSON: {error}") from None
    except RecursionError:
        raise InvalidJson("The body is nested too deeply.") from None


def _field_error(message: str) -> RequestError:
    sentence, path = sentence_and_path(message)
    path = shortened(path)
    if (unknown := unknown_field(sentence)) is not None:
        field = _inside(path, unknown)
        if field in OPENAI_ONLY:
            return UnsupportedField(f"{field} is not supported by this engine.", param=field)
        return UnknownField(f"Unknown field: {field}. This engine does not support it.", param=field)
    if (missing := missing_field(sentence)) is not None:
        field = _inside(path, missing)
        return MissingField(f"Missing field: {field}.", param=field)
    return InvalidField(f"{path or 'body'}: {shortened(sentence)}.", param=path or None)


def _inside(path: str, name: str) -> str:
    name = shortened(name)
    return f"{path}.{name}" if path else name
