"""An engine that writes on and on is stopped, and what a request may be answered with is let through."""

from __future__ import annotations

import msgspec
import pytest

from contracts.errors import EngineFailed
from contracts.generation import Caller, ChatPrompt, Generation, Sampling, Tier
from contracts.usage import Finish
from engines.http.event_splitter import MAX_EVENT_BYTES
from gateway.serving.answer_size import BYTES_PER_ALTERNATIVE, BYTES_PER_TOKEN, AnswerSize
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import body, harness

LONG = 400_000
"""Of a token: sixteen are past the bound, and the first few are not."""


def generation(max_tokens: int, n: int = 1, logprobs: int | None = None) -> Generation:
    sampling = Sampling(max_tokens=max_tokens, n=n, logprobs=logprobs)
    return Generation("r", Caller("o", "p", "k"), Tier.CHAT, "m", ChatPrompt(()), sampling)


@pytest.mark.parametrize(
    ("asked", "most"),
    [
        (generation(16), MAX_EVENT_BYTES + 16 * BYTES_PER_TOKEN),
        (generation(16, n=3), MAX_EVENT_BYTES + 48 * BYTES_PER_TOKEN),
        (generation(16, logprobs=5), MAX_EVENT_BYTES + 16 * (BYTES_PER_TOKEN + 6 * BYTES_PER_ALTERNATIVE)),
    ],
)
def test_the_most_is_by_tokens_choices_and_log_probabilities(asked: Generation, most: int) -> None:
    size = AnswerSize(asked)
    size.add(most - 1)
    size.add(1)
    with pytest.raises(EngineFailed, match="more than the response may have"):
        size.add(1)


@pytest.mark.parametrize("stream", [True, False])
async def test_an_engine_that_does_not_end_is_stopped(stream: bool) -> None:
    async with harness(engines=1) as platform:
        for engine in platform.engines:
            engine.control(msgspec.json.encode({"tokens": 16, "texts": ["x" * LONG] * 16}))
        client = Client()
        await platform.serve(client, body(stream=stream, max_tokens=16))
        await platform.engines_idle()
        platform.require_balanced()
        record = platform.journal.records[-1]
        assert (record.finish, record.error_code) == (Finish.ENGINE_ERROR, EngineFailed.code)
        assert platform.router.ends[-1].engine_fault
        assert len(client.sent) <= MAX_EVENT_BYTES + LONG
