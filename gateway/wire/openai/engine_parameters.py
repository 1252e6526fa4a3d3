"""Reads parameters of engines' own APIs in a client's body, if its model's engines take them.

The decoder puts fields that the request's struct lacks into `extra_body`, undecoded; this module checks them for the
model's engines. A request without such fields costs nothing.
"""

from __future__ import annotations

from typing import Any

import msgspec

from contracts.engine_parameters import NO_EFFORT, NOT_THINKING, TemplateValue, template_variables
from contracts.errors import InvalidField, RequestError, UnsupportedField
from contracts.misfit import shortened
from engines.drivers.parameters import CHAT_TEMPLATE_KWARGS, KNOWN, STOP_TOKEN_IDS, Parameter
from gateway.wire.decode import refused_field
from gateway.wire.openai.foreign_names import IN_CHAT, IN_COMPLETION, NOT_PASSED_ON, WITHOUT_EFFECT
from gateway.wire.openai.schema import UNSUPPORTED_CHAT, ChatRequest, Common
from gateway.wire.prepared import Target

JsonObject = dict[str, Any]


def engine_parameters(request: Common, target: Target) -> JsonObject | None:
    """The body's parameters that the model's engines take; None if it has none.

    Raises a RequestError that names the field: UnsupportedField or UnknownField if the engines do not take it,
    InvalidField for an invalid value.
    """
    if not request.extra_body:
        return None
    read: JsonObject = {}
    for name, raw in request.extra_body.items():
        if bytes(raw).strip() in (b"null", *WITHOUT_EFFECT.get(name, ())):
            continue
        parameter = target.capabilities.parameters.get(name)
        if parameter is None:
            raise _refusal(name, request, target)
        if parameter.chat_only and not isinstance(request, ChatRequest):
            raise UnsupportedField(f"Unsupported parameter: '{name}' belongs to POST /v1/chat/completions.", param=name)
        read[name] = _value(name, raw, parameter)
    if STOP_TOKEN_IDS in read:
        _require_known_ids(read[STOP_TOKEN_IDS], target)
    return read or None


def template_kwargs(asked: JsonObject | None, effort: str | None, target: Target) -> dict[str, TemplateValue] | None:
    """The variables of the chat template: the model's, overridden by those of `reasoning_effort`, overridden by the
    request's, which are removed from `asked`. Raises InvalidField.

    SGLang and vLLM treat the effort `none` in the same way; setting the variables here makes it work in every version,
    and keeps the gateway's count equal to the engine's.
    """
    variables: dict[str, TemplateValue] = dict(target.model.chat_template_kwargs)
    if effort == NO_EFFORT and CHAT_TEMPLATE_KWARGS in target.capabilities.parameters:
        variables |= NOT_THINKING
    if asked is not None and CHAT_TEMPLATE_KWARGS in asked:
        variables |= template_variables(asked.pop(CHAT_TEMPLATE_KWARGS), CHAT_TEMPLATE_KWARGS)
    return variables or None


def _value(name: str, raw: msgspec.Raw, parameter: Parameter) -> Any:
    try:
        return msgspec.json.decode(raw, type=parameter.kind)
    except msgspec.ValidationError:
        quoted = shortened(bytes(raw).decode("utf-8", "replace"))
        allowed = parameter.allowed or "a JSON value whose numbers are in range"
        raise InvalidField(f"Invalid value for '{name}': {quoted}. It must be {allowed}.", param=name) from None
    except (msgspec.DecodeError, UnicodeDecodeError):  # the body's decoder skipped the value and checked no text in it
        raise InvalidField(f"Invalid value for '{name}': it is not valid JSON in UTF-8.", param=name) from None


def _refusal(name: str, request: Common, target: Target) -> RequestError:
    """The reason for refusing a field, and the next step."""
    if name in type(request).__struct_fields__:
        return UnsupportedField(
            f"Unsupported parameter: 'extra_body.{name}'; write '{name}' at the top of the body.", param=name
        )
    if name in KNOWN:
        return UnsupportedField(
            f"Unsupported parameter: '{name}' is not accepted by the engines of '{target.model.name}' (driver "
            f"{' and '.join(target.capabilities.dialects)}). Leave it out. If the engines know it, an operator can "
            "add it to 'engine_parameters' of their pool.",
            param=name,
        )
    chat = isinstance(request, ChatRequest)
    return refused_field(
        name,
        type(request),
        UNSUPPORTED_CHAT if chat else (),
        NOT_PASSED_ON,
        IN_CHAT if chat else IN_COMPLETION,
    )


def _require_known_ids(ids: list[int], target: Target) -> None:
    """Refuse an id outside the vocabulary: an engine that does not check ids would crash on it."""
    if target.tokenizer is None:
        if ids and not target.capabilities.checks_token_ids:
            raise UnsupportedField(
                f"'{STOP_TOKEN_IDS}' is not available for this model, because it has no tokenizer to check the ids. "
                "Send the texts of these tokens in 'stop'.",
                param=STOP_TOKEN_IDS,
            )
        return
    size = target.tokenizer.tokenizer.vocabulary_size
    if max(ids, default=0) >= size:
        raise InvalidField(
            f"Invalid value for '{STOP_TOKEN_IDS}': {max(ids)} is outside this model's vocabulary of {size}.",
            param=STOP_TOKEN_IDS,
        )
