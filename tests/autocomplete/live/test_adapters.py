"""Continue's own client (npm `@continuedev/openai-adapters`) against a gateway."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from tests.autocomplete.asked import engine_record, sides
from tests.autocomplete.live.node import HERE, require_node
from tests.gateway.slow_platform import SlowPlatform

GUARD_S = 60.0
PREFIX, SUFFIX = "def add(a, b):\n    retu", "\n\nprint(add(1, 2))\n"
TEXTS = ("rn a", " + b")


async def ask(platform: SlowPlatform, method: str, **body: Any) -> dict[str, Any]:
    """One request of the client's."""
    node = require_node()
    asked = {"method": method, "apiBase": f"{platform.url}/v1/", "apiKey": platform.key, "body": body}
    await platform.engine.control(texts=TEXTS, tokens=len(TEXTS))
    try:
        process = await asyncio.create_subprocess_exec(
            node, "adapters.mjs", cwd=HERE, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(GUARD_S):
            output, complaint = await process.communicate(msgspec.json.encode(asked))
    finally:
        await platform.engine.control(texts=(), tokens=16)
    assert process.returncode == 0, complaint.decode()
    answer: dict[str, Any] = msgspec.json.decode(output)
    return answer


async def asked_last(platform: SlowPlatform) -> tuple[str, str]:
    """The gap that the engine was asked to fill."""
    *_, last = await platform.engine.recorded()
    record = await engine_record(platform, last["rid"])
    return sides(record["body"]["prompt"])


async def test_a_completion_with_a_suffix_is_streamed_to_the_end(platform: SlowPlatform) -> None:
    answer = await ask(
        platform, "completionStream", model="narrow", prompt=PREFIX, suffix=SUFFIX, max_tokens=64, stream=True
    )
    assert answer == {"text": "".join(TEXTS), "finish_reason": "stop"}
    assert await asked_last(platform) == (PREFIX, SUFFIX)


async def test_a_gap_is_streamed_as_mistral_streams_it(platform: SlowPlatform) -> None:
    answer = await ask(platform, "fimStream", model="narrow", prompt=PREFIX, suffix=SUFFIX, max_tokens=64, stream=True)
    assert answer == {"text": "".join(TEXTS), "finish_reason": "stop"}
    assert await asked_last(platform) == (PREFIX, SUFFIX)
