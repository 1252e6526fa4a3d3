"""The old engines route: the path names the model."""

from __future__ import annotations

import msgspec
import pytest

from contracts.errors import InvalidField
from gateway.wire.config import RequestConfig
from gateway.wire.openai.format import EngineCompletionFormat

COPILOT = {
    "prompt": "def add(a, b):\n    return ",
    "suffix": "\n",
    "max_tokens": 500,
    "temperature": 0,
    "top_p": 1,
    "n": 10,
    "stop": ["\n\n\n"],
    "nwo": "github/docs",
    "stream": True,
    "extra": {"language": "python", "next_indent": 4, "trim_by_indentation": True},
}
"""As Copilot's plugin wrote it, from memory of its source."""
FORMAT = EngineCompletionFormat(RequestConfig())


def test_the_paths_model_is_asked_and_what_the_plugin_adds_is_taken() -> None:
    one, other = FORMAT.of("codegen"), FORMAT.of("starcoder")
    asked = one.decode(msgspec.json.encode(COPILOT))

    assert (asked.model, asked.suffix, asked.n, asked.stop) == ("codegen", "\n", 10, ["\n\n\n"])
    assert other.decode(b'{"prompt":"x"}').model == "starcoder"
    assert one.decode(b'{"prompt":"x","model":"codegen"}').model == "codegen"


def test_a_body_that_names_another_model_is_refused() -> None:
    with pytest.raises(InvalidField) as refused:
        FORMAT.of("codegen").decode(b'{"prompt":"x","model":"starcoder"}')
    assert refused.value.param == "model"
    assert "the path names 'codegen'" in refused.value.message
