"""A conversation goes on with the tool calls that engines write; one that no template takes is refused by name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from contracts.errors import InvalidField
from gateway.wire.openai.decode import Decoder


def history(*arguments: str) -> bytes:
    calls = [
        {"id": f"c{at}", "type": "function", "function": {"name": "f", "arguments": text}}
        for at, text in enumerate(arguments)
    ]
    results = [{"role": "tool", "tool_call_id": f"c{at}", "content": "1"} for at in range(len(arguments))]
    messages: list[Any] = [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": calls}, *results]
    return msgspec.json.encode({"model": "m", "messages": messages})


@pytest.mark.parametrize(("sent", "read"), [("", "{}"), (" \n", "{}"), ("null", "{}"), ('{"x": [1]}', '{"x": [1]}')])
def test_no_arguments_are_an_empty_object(sent: str, read: str) -> None:
    message: Any = Decoder().chat(history("{}", sent)).messages[1]

    assert [call.function.arguments for call in message.tool_calls] == ["{}", read]


@pytest.mark.parametrize("sent", ['{"z":', "[1]", '"text"', "7", "{}{}", "nonsense"])
def test_arguments_that_are_no_object_are_refused_by_name(sent: str) -> None:
    with pytest.raises(InvalidField, match="is not a JSON object") as refused:
        Decoder().chat(history("{}", sent))

    assert refused.value.param == "messages[1].tool_calls[1].function.arguments"
