"""The quick reading of an event's text beside the plain one."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.chunk import texts_in, texts_of

TEXT = st.none() | st.text(max_size=3)
CALL = st.fixed_dictionaries(
    {}, optional={"index": st.integers(0, 2), "function": st.fixed_dictionaries({"name": TEXT, "arguments": TEXT})}
)
DELTA = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("content", "reasoning_content", "reasoning", "refusal"), TEXT),
        "tool_calls": st.none() | st.lists(CALL, max_size=2),
        "role": st.just("assistant"),
    },
)
CHOICE = st.fixed_dictionaries({"index": st.integers(0, 2)}, optional={"delta": DELTA, "text": TEXT})


@given(st.lists(CHOICE, max_size=3))
def test_both_readings_find_the_same_text(choices: list[dict[str, Any]]) -> None:
    event = {"id": "1", "choices": choices}
    assert texts_in(msgspec.json.encode(event)) == list(texts_of(event))
