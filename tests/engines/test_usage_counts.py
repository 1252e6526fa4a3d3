"""What engines and proxies in front of them tell in a usage object, and what becomes of nonsense."""

from __future__ import annotations

from typing import Any

import pytest

from contracts.errors import EngineFailed
from contracts.usage import Usage
from engines.drivers.error_bodies import MAX_TOKENS, usage_of, with_drafts


@pytest.mark.parametrize("count", [-1, MAX_TOKENS + 1, 10**22, 1e308, float("inf"), float("nan"), [1], "many"])
@pytest.mark.parametrize("name", ["prompt_tokens", "completion_tokens", "reasoning_tokens"])
def test_a_count_that_is_none_makes_the_usage_unreadable(name: str, count: Any) -> None:
    with pytest.raises(EngineFailed, match="cannot be read"):
        usage_of({name: count})


@pytest.mark.parametrize(
    "details", [{"prompt_tokens_details": {"cached_tokens": -1}}, {"completion_tokens_details": [1]}]
)
def test_so_does_one_of_the_details(details: dict[str, Any]) -> None:
    with pytest.raises(EngineFailed, match="cannot be read"):
        usage_of({"prompt_tokens": 7} | details)


def test_a_part_is_no_more_than_its_whole() -> None:
    told = {
        "prompt_tokens": 7,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 9},
        "completion_tokens_details": {"reasoning_tokens": 6},
    }
    assert usage_of(told) == Usage(7, 5, cached_tokens=7, reasoning_tokens=5, cache_write_tokens=7)


@pytest.mark.parametrize(
    ("total", "completion"), [(135, 103), (41, 9), (None, 9), ("135", 9), (-1, 9)], ids=["xAI's", "OpenAI's", *"abc"]
)
def test_reasoning_that_is_counted_on_top_of_the_completion_is_output_too(total: Any, completion: int) -> None:
    """The counts are of xAI's own example. Its 94 tokens of reasoning were billed to nobody."""
    details = {"reasoning_tokens": 94 if completion == 103 else 5}
    told = {
        "prompt_tokens": 32,
        "completion_tokens": 9,
        "total_tokens": total,
        "completion_tokens_details": details,
    }
    assert usage_of(told) == Usage(32, completion, reasoning_tokens=details["reasoning_tokens"])


@pytest.mark.parametrize("count", [-1, MAX_TOKENS + 1, 1e308, float("inf"), "many", [1]])
def test_drafts_that_cannot_be_counted_change_nothing(count: Any) -> None:
    usage = Usage(7, 5)
    assert with_drafts(usage, {"spec_tokens_details": [{"spec_num_proposed_drafts": count}]}) is usage
    assert with_drafts(usage, {"speculative_decoding": {"num_accepted_draft_tokens": count}}) is usage
