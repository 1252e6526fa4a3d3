"""A prompt longer than a rule of its caller allows is refused by that rule's name, before anything is taken."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.generation import Tier
from gateway.limits.levels import Level, Levels, Limits, Rule
from gateway.limits.plan import plan_of
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import KEY, body, harness
from tests.gateway.wire.anthropic.asking import CHAT_MODEL, MESSAGES, asked


def rule(level: Level, cap: int | None, tier: Tier | None = None, **limits: Any) -> Rule:
    return Rule(level, f"the {level.value}", tier, Limits(max_prompt_tokens=cap, **limits))


@pytest.mark.parametrize(
    ("rules", "refusing"),
    [
        ([rule(Level.PROJECT, 20, Tier.CHAT)], ("project", "chat", 20)),
        ([rule(Level.ORGANIZATION, 50), rule(Level.KEY, 30)], ("key", None, 30)),
        ([rule(Level.ORGANIZATION, 20), rule(Level.KEY, 30)], ("organization", None, 20)),
        ([rule(Level.KEY, 20, Tier.AUTOCOMPLETE)], None),
        ([rule(Level.KEY, 100_000)], None),
    ],
)
async def test_the_strictest_rule_refuses_and_nothing_is_reserved(
    rules: list[Rule], refusing: tuple[str, str | None, int] | None
) -> None:
    key = msgspec.structs.replace(KEY, levels=Levels.of("organization", rules))
    async with harness() as platform:
        client = Client()
        asked = body(messages=[{"role": "user", "content": "long " * 40}])
        request = await platform.serve(client, asked, key=key)
        platform.require_balanced()
        if refusing is None:
            assert client.answer.status == 200
            return
        assert client.answer.status == 429
        assert not platform.limiter.reserved
        error = client.answer.json["error"]
        detail = error["limit"]
        assert (detail["level"], detail["tier"], detail["limit"]) == refusing
        assert (error["code"], detail["counter"]) == ("request_exceeds_limit", "max_prompt_tokens")
        assert detail["requested"] == request.prepared.prompt_tokens
        assert f"about {request.prepared.prompt_tokens} tokens, more than the {refusing[2]}" in error["message"]
        assert client.answer.headers["x-should-retry"] == "false"


async def test_messages_say_it_in_the_words_by_which_agents_shorten_their_conversation() -> None:
    """Fault: a 429, which Claude Code repeats."""
    key = msgspec.structs.replace(KEY, levels=Levels.of("organization", [rule(Level.KEY, 1)]))
    async with harness(tokenizer=CHAT_MODEL) as platform:
        client = Client()
        request = await platform.serve(client, msgspec.json.encode(asked()), MESSAGES, key=key)
    assert client.answer.status == 400
    error = client.answer.json["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"].startswith(f"prompt is too long: {request.prepared.prompt_tokens} tokens > 1 maximum. ")


@given(
    caps=st.lists(st.tuples(st.sampled_from(Level), st.sampled_from([None, *Tier]), st.integers(1, 100)), max_size=6),
    tokens=st.integers(0, 120),
    tier=st.sampled_from(Tier),
)
def test_a_prompt_passes_exactly_if_every_rule_of_its_tier_lets_it(
    caps: list[tuple[Level, Tier | None, int]], tokens: int, tier: Tier
) -> None:
    levels = Levels.of("o", [rule(level, cap, of) for level, of, cap in caps])
    found = levels.cap(tier)
    passes = all(tokens <= cap for _, of, cap in caps if of in (None, tier))
    assert passes is (found is None or tokens <= found[0])
    assert levels.capped is bool(caps)


def test_a_rule_that_only_bounds_prompts_costs_no_counter() -> None:
    bound = rule(Level.KEY, 20)
    assert plan_of("x", Levels.of("o", [bound]), Tier.CHAT) is None
    plan = plan_of("x", Levels.of("o", [bound, rule(Level.PROJECT, 9, requests_per_minute=1)]), Tier.CHAT)
    assert plan is not None
    assert [each.level for each in plan.rules] == [Level.PROJECT]
