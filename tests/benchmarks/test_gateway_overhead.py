"""The benchmark's client takes nothing but a whole stream for an answer."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from benchmarks.gateway_overhead import TOKENIZER, Client, prompts_of
from contracts.errors import SlipstreamError
from engines.tokenizer.tokenizer import Tokenizer
from tests.fakes.process import FakeEngineProcess, fake_engine


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngineProcess]:
    async with fake_engine() as running:
        yield running


@pytest.mark.parametrize("fault", ["error_after_tokens", "die_after_tokens"])
async def test_a_stream_that_ends_early_is_no_answer(engine: FakeEngineProcess, fault: str) -> None:
    client = Client(engine.url, engine.token, "fake", ["hello"])
    await engine.control(tokens=8)
    assert await client.stream(8) > 0
    await engine.control(**{fault: 4})
    with pytest.raises((RuntimeError, SlipstreamError)):
        await client.stream(8)
    await client.close()


def test_prompts_have_the_tokens_they_are_to_have_and_begin_differently() -> None:
    tokenizer = Tokenizer.load(TOKENIZER)
    prompts = prompts_of(tokenizer, 500)
    assert all(500 <= tokenizer.count(prompt) <= 505 for prompt in prompts)
    assert len({prompt.split()[0] for prompt in prompts}) == len(prompts)
