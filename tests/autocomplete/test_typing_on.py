"""Somebody types on, and the next request comes to another gateway of the deployment: the older one ends there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.gateway.slow_platform import SlowPlatform

FIM = "/v1/fim/completions"


@pytest.fixture(scope="module")
async def other_gateway(platform: SlowPlatform) -> AsyncIterator[str]:
    """The URL of a second one beside the platform's."""
    async with platform.another_gateway() as url:
        yield url


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_keystroke_at_one_gateway_ends_the_older_one_at_another(
    platform: SlowPlatform, other_gateway: str, stream: bool
) -> None:
    async def ask(url: str, prompt: str) -> tuple[str, Any, Any]:
        body = {"model": "gaps", "prompt": prompt, "suffix": "\n", "max_tokens": 100, "stream": stream}
        headers = {"authorization": f"Bearer {platform.key}", "user-agent": "Zed/0.211"}
        async with platform.session.post(url + FIM, json=body, headers=headers) as response:
            assert response.status == 200
            answer = await response.text() if stream else await response.json()
            return response.headers["x-request-id"], answer, response.headers

    requests = len(await platform.engine.recorded())
    await platform.engine.control(tokens=100, hang=True)
    try:
        older = asyncio.create_task(ask(platform.url, f"# {stream}\ndef f():\n    ret"))
        await platform.engine.wait(requests=requests + 1)
        await platform.engine.control(hang=False, tokens=3)
        newer_id, newer, _ = await ask(other_gateway, f"# {stream}\ndef f():\n    return")
        older_id, answer, headers = await older
    finally:
        await platform.engine.control(hang=False, tokens=16)
    assert headers["x-slipstream-superseded-by"] == newer_id
    if stream:
        assert answer.endswith("data: [DONE]\n\n")
        assert " t2" in newer
    else:
        assert answer["choices"][0]["message"]["content"] == ""
        assert newer["choices"][0]["message"]["content"].endswith(" t2")
    charge, trace = await platform.charge(older_id), await platform.trace(older_id)
    assert (charge["finish"], charge["outcome"], charge["completion_tokens"]) == ("complete", "exact", 0)
    assert (trace["status"], trace["error_code"], trace["reason"]) == (200, "superseded", f"by {newer_id}")
