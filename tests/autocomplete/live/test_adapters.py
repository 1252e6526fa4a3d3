"""Continue's own client (npm `@continuedev/openai-adapters`) against a gateway."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from tests.autocomplete.asked import engine_record, sides
from tests.autocomplete.live.node import HERE, require_node
from tests.gateway.slow_platform import SlowPlatform

GUARD_S = 60.0
PREFIX, SUFFIX = "def add(a, b):\n    retu", "\n\nprint(add(1, 2))\n"
TEXTS = ("rn a", " + b")


async def run(platform: SlowPlatform, method: str, options: dict[str, Any], **body: Any) -> dict[str, Any]:
    """One request of the client's. options: as `requestOptions` in its configuration."""
    node = require_node()
    asked = {
        "method": method, "apiBase": f"{platform.url}/v1/", "apiKey": platform.key, "requestOptions": options,
        "body": {"model": "gaps", "suffix": SUFFIX, "max_tokens": 64, "stream": True, **body},
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        node, "adapters.mjs", cwd=HERE, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(GUARD_S):
        output, complaint = await process.communicate(msgspec.json.encode(asked))
    assert process.returncode == 0, complaint.decode()
    answer: dict[str, Any] = msgspec.json.decode(output)
    return answer


async def ask(platform: SlowPlatform, method: str) -> dict[str, Any]:
    """The gap between `PREFIX` and `SUFFIX`, filled with `TEXTS`."""
    await platform.engine.control(texts=TEXTS, tokens=len(TEXTS))
    try:
        return await run(platform, method, {}, prompt=PREFIX)
    finally:
        await platform.engine.control(texts=(), tokens=16)


async def asked_last(platform: SlowPlatform) -> tuple[str, str]:
    """The gap that the engine was asked to fill."""
    *_, last = await platform.engine.recorded()
    record = await engine_record(platform, last["rid"])
    return sides(record["body"]["prompt"])


async def test_a_completion_with_a_suffix_is_streamed_to_the_end(platform: SlowPlatform) -> None:
    answer = await ask(platform, "completionStream")
    assert answer == {"text": "".join(TEXTS), "finish_reason": "stop"}
    assert await asked_last(platform) == (PREFIX, SUFFIX)


async def test_a_gap_in_mistrals_shape_is_streamed_to_the_end(platform: SlowPlatform) -> None:
    answer = await ask(platform, "fimStream")
    assert answer == {"text": "".join(TEXTS), "finish_reason": "stop"}
    assert await asked_last(platform) == (PREFIX, SUFFIX)


@pytest.mark.parametrize("method", ["fimStream", "completionStream"])
async def test_its_settings_can_say_how_sure_the_model_must_be(platform: SlowPlatform, method: str) -> None:
    """docs/guides/editors.md, "VS Code: Continue"."""
    await platform.engine.control(texts=TEXTS, tokens=len(TEXTS))
    try:
        await run(platform, method, {"extraBodyProperties": {"min_confidence": 0.4}}, prompt=PREFIX)
    finally:
        await platform.engine.control(texts=(), tokens=16)
    assert (await platform.engine.recorded())[-1]["body"]["logprobs"] is not None


@pytest.mark.parametrize(
    ("method", "options"),
    [("fimStream", {}), ("completionStream", {"headers": {"x-slipstream-client": "continue"}})],
    ids=["mistral", "openai"],
)
async def test_a_keystroke_ends_the_request_it_was_typed_on_with_each_set_up_of_the_guide(
    platform: SlowPlatform, method: str, options: dict[str, Any]
) -> None:
    """docs/guides/editors.md, "VS Code: Continue"."""
    require_node()  # here, not in a task whose request the engine is waited for
    before = len(await platform.engine.recorded())
    typed = f"# {method}\n{PREFIX}"
    await platform.engine.control(tokens=100, hang=True)
    try:
        older = asyncio.create_task(run(platform, method, options, prompt=typed))
        await platform.engine.wait(requests=before + 1)
        await platform.engine.control(hang=False, tokens=3)
        newer = await run(platform, method, options, prompt=typed + "rn")
        answer = await older
    finally:
        await platform.engine.control(hang=False, tokens=16)
    assert newer["text"]
    assert answer == {"text": "", "finish_reason": "stop"}
    trace = await platform.trace((await platform.engine.recorded())[before]["rid"])
    assert (trace["error_code"], trace["client"]) == ("superseded", "continue")
