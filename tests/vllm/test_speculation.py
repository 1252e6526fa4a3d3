"""A vLLM that guesses ahead tells of each answer what it guessed and what was kept, and its text stays the model's."""

from __future__ import annotations

import json

import pytest

from contracts.generation import TextPrompt
from contracts.usage import Usage
from engines.drivers.vllm import VLLMDriver
from engines.http.engine_connections import EngineConnections
from gateway.wire.usage_tracker import UsageTracker
from tests.real_engine import RealEngine, ask, text_of
from tests.vllm.server import vllm_process

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(700)]
GUESSES = 3
NGRAM = {"method": "ngram", "num_speculative_tokens": GUESSES, "prompt_lookup_max": 3, "prompt_lookup_min": 1}
REPEATING = TextPrompt(("one two three four one two three four one two three",))


async def test_guessed_and_kept_tokens_are_told_with_the_usage(
    engine: RealEngine, connections: EngineConnections
) -> None:
    plain, usage = await answered(engine)
    assert (usage.draft_tokens, usage.accepted_draft_tokens) == (0, 0)
    flags = ("--speculative-config", json.dumps(NGRAM), "--per-request-spec-decode-metrics", "summary")
    async with vllm_process(*flags) as process:
        guessing = RealEngine(VLLMDriver(), process.server.url, process.server.model, connections)
        text, usage = await answered(guessing)
        assert text == plain
        assert 0 < usage.accepted_draft_tokens <= usage.draft_tokens <= GUESSES * usage.completion_tokens
        # started without: priorities are passed over, not refused, and nothing is stopped by id
        assert (await guessing.usage(ask(REPEATING, priority=1))).completion_tokens == 8
        assert (await guessing.fetch(VLLMDriver(abort_by_id=True).abort("x")))[0] == 403


async def answered(engine: RealEngine) -> tuple[str, Usage]:
    """The text, and what the gateway makes of the usage."""
    events = await engine.events(ask(REPEATING, max_tokens=40))
    tracker = UsageTracker(1)
    for event in events[:-1]:
        tracker.chunk(event)
    assert tracker.total is not None
    return text_of(events), tracker.total
