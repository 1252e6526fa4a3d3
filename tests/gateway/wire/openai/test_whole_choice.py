"""A whole answer's choice behind an engine that writes what it likes."""

from __future__ import annotations

import pytest

from contracts.errors import EngineFailed
from gateway.wire.openai.schema import MAX_CALLS
from gateway.wire.openai.whole_choice import WholeChoice


@pytest.mark.parametrize("index", [-1, MAX_CALLS, 10**7])
def test_a_tool_call_beyond_the_most_is_the_engines_fault(index: int) -> None:
    choice = WholeChoice(0, "ours", chat=True)
    with pytest.raises(EngineFailed, match="more tool calls"):
        choice.add({"delta": {"tool_calls": [{"index": index, "function": {"name": "f"}}]}})
    assert "tool_calls" not in choice.json()["message"]


def test_the_last_call_that_fits_is_kept() -> None:
    choice = WholeChoice(0, "ours", chat=True)
    choice.add({"delta": {"tool_calls": [{"index": MAX_CALLS - 1, "function": {"name": "f", "arguments": "{}"}}]}})
    assert choice.json()["message"]["tool_calls"][-1]["function"] == {"name": "f", "arguments": "{}"}


@pytest.mark.parametrize("items", ["nan", 17, {"token": "a"}, True])
def test_log_probabilities_that_are_no_list_are_the_engines_fault(items: object) -> None:
    """Their JSON was cut open, and the whole answer was none."""
    choice = WholeChoice(0, "ours", chat=True)
    with pytest.raises(EngineFailed, match="not a list"):
        choice.add({"delta": {"content": "a"}, "logprobs": {"content": items}})
