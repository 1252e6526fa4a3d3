"""What a client asked for and was shown is noted without a word of it."""

from __future__ import annotations

import msgspec
import pytest

from tests.autocomplete.fixture import fixture, names
from tests.gateway.slow_platform import SlowPlatform

MODEL = "gaps"


@pytest.mark.parametrize("name", names())
async def test_each_clients_answer_is_noted_by_its_length_and_language(platform: SlowPlatform, name: str) -> None:
    told = fixture(name, platform.key, MODEL)
    await platform.engine.control(texts=told.texts, tokens=len(told.texts))
    try:
        async with platform.session.post(
            platform.url + told.path, data=msgspec.json.encode(told.body), headers=told.headers
        ) as response:
            await response.read()
            assert response.status == 200
            trace = await platform.trace(response.headers["x-request-id"])
    finally:
        await platform.engine.control(texts=(), tokens=16)
    assert trace["characters"] == len(told.shown)
    assert trace["language"] == told.body.get("language")
    agent = told.headers.get("user-agent", "")
    twice = {"x-api-key", "authorization"} <= set(told.headers)  # as only Continue sends its key
    fim = told.path == "/v1/fim/completions"
    otherwise = "tabby-agent" if "segments" in told.body else "continue" if fim and twice else "other"
    assert trace["client"] == ("curl" if agent.startswith("curl/") else otherwise)
    assert not told.shown or told.shown not in str(
        {name: value for name, value in trace.items() if name != "characters"}
    )
