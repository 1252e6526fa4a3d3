"""Where a gap's completion ends under OpenAI's paths: for known editors by the rules, for all others with the model."""

from __future__ import annotations

import pytest

from tests.gateway.slow_platform import SlowPlatform

TEXTS = ("value", "\nother = 2")
GAP = {"prompt": "x = ", "suffix": " + 1\n", "max_tokens": 16, "temperature": 0}
RENDERED = {"prompt": "<|fim_prefix|>x = <|fim_suffix|> + 1\n<|fim_middle|>", "max_tokens": 16, "temperature": 0}
ZED = {"user-agent": "Zed/0.211.6"}
CONTINUE = {"x-slipstream-client": "continue"}
SCRIPT = {"user-agent": "OpenAI/Python 2.1.0"}


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/engines/gaps/completions"])
@pytest.mark.parametrize("gap", [GAP, RENDERED], ids=["suffix", "rendered"])
@pytest.mark.parametrize(
    ("headers", "shown"),
    [(ZED, "value"), (CONTINUE, "value"), (SCRIPT, "".join(TEXTS))],
    ids=["zed", "continue", "script"],
)
async def test_the_rules_hold_for_known_editors_without_a_setting(
    platform: SlowPlatform, path: str, gap: dict[str, object], headers: dict[str, str], shown: str
) -> None:
    body = gap if "engines" in path else {**gap, "model": "gaps"}
    await platform.engine.control(texts=TEXTS, tokens=len(TEXTS))
    try:
        told = {"authorization": f"Bearer {platform.key}", **headers}
        async with platform.session.post(platform.url + path, json=body, headers=told) as response:
            answer = await response.json()
            assert response.status == 200, answer
    finally:
        await platform.engine.control(texts=(), tokens=16)
    assert answer["choices"][0]["text"] == shown
