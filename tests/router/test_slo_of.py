"""Which promise a prompt's length has, by default."""

from __future__ import annotations

import pytest

from contracts.generation import Tier
from contracts.length_class import LONG_TOKENS, MEDIUM_TOKENS, length_class
from router.config import SLOS, slo_of


@pytest.mark.parametrize("bound", [MEDIUM_TOKENS, LONG_TOKENS])
def test_a_prompt_is_placed_by_another_promise_where_its_length_class_begins(bound: int) -> None:
    below, at = (slo_of(SLOS, Tier.CHAT, tokens) for tokens in (bound - 1, bound))
    assert below is not None
    assert at is not None
    assert length_class(bound - 1) is not length_class(bound)
    assert at.ttft_s > below.ttft_s
