"""Whatever the OpenAI SDK can send is a field of ours or refused by its name, by the engine and by the gateway."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from openai.resources.chat.completions import AsyncCompletions as Chat
from openai.resources.completions import AsyncCompletions as Text

from contracts.errors import UnknownField, UnsupportedField
from engines.embedded.http.bodies import ChatBody, CompletionBody, decode_body
from gateway.wire.openai.decode import Decoder
from gateway.wire.openai.engine_parameters import engine_parameters
from gateway.wire.openai.schema import ChatRequest, CompletionRequest
from tests.gateway.wire.openai.preparing import target

NOT_SENT = {"self", "extra_headers", "extra_query", "extra_body", "timeout"}
GATEWAY = Decoder()
ENGINE = target(None, "embedded")
Decode = Callable[[bytes], Any]


def fields(method: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(method).parameters if name not in NOT_SENT]


CASES = [
    (fields(Chat.create), ChatBody, lambda body: decode_body(body, ChatBody)),
    (fields(Text.create), CompletionBody, lambda body: decode_body(body, CompletionBody)),
    (fields(Chat.create), ChatRequest, lambda body: engine_parameters(GATEWAY.chat(body), ENGINE)),
    (fields(Text.create), CompletionRequest, lambda body: engine_parameters(GATEWAY.completion(body), ENGINE)),
]


@pytest.mark.parametrize(("names", "kind", "decode"), CASES)
def test_every_field_of_the_sdk_is_known_or_refused_by_its_name(names: list[str], kind: type, decode: Decode) -> None:
    known = {field.encode_name for field in msgspec.structs.fields(kind)}
    assert {"model", "temperature", "seed", "stream", "logit_bias"} <= known & set(names)
    refused = [name for name in names if name not in known]
    for name in refused:
        own = {"messages": [{"role": "user", "content": "x"}]} if "messages" in known else {"prompt": "x"}
        body = msgspec.json.encode({"model": "m", **own, name: "on"})
        with pytest.raises((UnsupportedField, UnknownField)) as error:
            decode(body)
        assert error.value.param == name


@pytest.mark.parametrize(("kind", "own"), [(ChatBody, {"messages": [{}]}), (CompletionBody, {"prompt": "x"})])
def test_a_field_nobody_knows_is_refused_too(kind: type, own: dict[str, Any]) -> None:
    body = msgspec.json.encode({"model": "m", **own, "minimum_tokens": 3})
    with pytest.raises(UnknownField) as error:
        decode_body(body, kind)
    assert error.value.param == "minimum_tokens"
