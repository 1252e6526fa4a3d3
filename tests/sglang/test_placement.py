"""Two real SGLang replicas behind the router: more is found cached than in turn, and what is cached is foreseen.

benchmarks/placement_sglang.py measures the same at length.
"""

from __future__ import annotations

import pytest

from tests.sglang.fleet import (
    KINDS,
    TOOLS,
    SGLangFleet,
    hit_rate,
    prediction_error,
    traffic,
)
from tests.sglang.server import SGLangProcess, SGLangServer

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(1_500)]
CONVERSATIONS = 5


@pytest.fixture
def servers(sglang: SGLangServer, another: SGLangProcess) -> tuple[SGLangServer, ...]:
    """Two alike."""
    return sglang, another.server


async def test_prefixes_are_found_again_and_foreseen(servers: tuple[SGLangServer, ...]) -> None:
    async with SGLangFleet(servers, "round_robin") as one, SGLangFleet(servers, "prefix") as other:
        blind, ours = await traffic((one, other), CONVERSATIONS, seed=5)
    assert hit_rate(ours) > hit_rate(blind)
    for kind in KINDS:
        assert prediction_error([one for one in ours if one.kind == kind]) < 0.15, kind
    assert all(one.counted_tokens == one.usage.prompt_tokens for one in ours)


@pytest.mark.parametrize(
    "choice", ["auto", "none", "required", {"type": "function", "function": {"name": "look_up_cities"}}]
)
async def test_tools_that_the_choice_leaves_out_are_not_counted(
    servers: tuple[SGLangServer, ...], choice: object
) -> None:
    messages = [{"role": "user", "content": "Where does the river rise?"}]
    async with SGLangFleet(servers, "prefix") as fleet:
        answered = await fleet.chat("tools", messages, tools=TOOLS, tool_choice=choice)
    assert answered.counted_tokens == answered.usage.prompt_tokens
