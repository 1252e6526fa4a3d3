"""Two real SGLang replicas behind the router: more is found cached than in turn, and what is cached is foreseen.

benchmarks/placement_sglang.py measures the same at length.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.sglang.fleet import (
    KINDS,
    TOOLS,
    SGLangFleet,
    hit_rate,
    prediction_error,
    traffic,
    with_tools_template,
)
from tests.sglang.server import MODELS, SGLangServer, sglang_server

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(1_500)]
CONVERSATIONS = 5


@pytest.fixture(scope="module")
async def servers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[SGLangServer, ...]]:
    folder = with_tools_template(MODELS / "slipstream-chat", tmp_path_factory.mktemp("model"))
    async with (
        sglang_server(folder, "tiny", "engine-token") as one,
        sglang_server(folder, "tiny", "engine-token") as two,
    ):
        yield one, two


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
