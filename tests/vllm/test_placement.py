"""Two real vLLM replicas behind the router: more is found cached than in turn, and what is cached is foreseen."""

from __future__ import annotations

import pytest

from tests.sglang.fleet import SGLangFleet, hit_rate, traffic
from tests.vllm.server import BLOCK_TOKENS, VLLMProcess, VLLMServer

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1_500)]
CONVERSATIONS = 3
KINDS = ("plain", "system")
"""Those that need neither a template with tools nor much memory."""


async def test_prefixes_are_found_again_and_foreseen(vllm: VLLMServer, another: VLLMProcess) -> None:
    servers = vllm, another.server
    async with (
        SGLangFleet(servers, "round_robin", driver="vllm") as one,
        SGLangFleet(servers, "prefix", driver="vllm") as other,
    ):
        blind, ours = await traffic((one, other), CONVERSATIONS, seed=5, kinds=KINDS)
    assert hit_rate(ours) > hit_rate(blind)
    assert all(one.counted_tokens == one.usage.prompt_tokens for one in ours)
    # it shares whole pages
    assert all(abs(one.predicted - one.usage.cached_tokens) <= BLOCK_TOKENS for one in ours)
