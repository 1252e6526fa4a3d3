"""vLLM's endpoints for token ids: the ids are those that the engine gets, and what they count is what is billed."""

from __future__ import annotations

from typing import Any

import msgspec

from engines.tokenizer.tokenizer import Tokenizer
from tests.gateway.conftest import CODE
from tests.gateway.slow_platform import SlowPlatform


async def post(platform: SlowPlatform, path: str, body: object) -> tuple[int, Any]:
    headers = {"authorization": f"Bearer {platform.key}", "content-type": "application/json"}
    async with platform.session.post(platform.url + path, data=msgspec.json.encode(body), headers=headers) as response:
        return response.status, await response.json()


async def test_a_text_becomes_ids_and_text_again(platform: SlowPlatform) -> None:
    text, own = "def area(width):\n    return width\n", Tokenizer.load(CODE)
    status, answer = await post(platform, "/tokenize", {"model": "gaps", "prompt": text, "return_token_strs": True})
    assert (status, answer["count"], answer["max_model_len"]) == (200, own.count(text), 4_096)
    assert answer["tokens"] == own.encode(text)
    assert "".join(answer["token_strs"]) == text
    plain = (await post(platform, "/tokenize", {"model": "gaps", "prompt": text, "add_special_tokens": False}))[1]
    assert plain["tokens"] == own.plain_ids(text)
    back = await post(platform, "/detokenize", {"model": "gaps", "tokens": answer["tokens"]})
    assert back == (200, {"prompt": text})


async def test_the_count_is_what_is_billed_and_no_engine_is_asked(platform: SlowPlatform) -> None:
    text = "class Heron:\n    pass\n"
    asked = await platform.engine.recorded()
    count = (await post(platform, "/tokenize", {"model": "gaps", "prompt": text}))[1]["count"]
    assert await platform.engine.recorded() == asked
    status, _ = await post(platform, "/v1/completions", {"model": "gaps", "prompt": text, "max_tokens": 1})
    assert status == 200
    (sent,) = [one for one in await platform.engine.recorded() if one not in asked]
    assert len(sent["body"]["prompt"]) == count


async def test_what_cannot_be_tokenized_says_why(platform: SlowPlatform) -> None:
    for body, status, param in (
        ({"model": "wide", "prompt": "a"}, 400, "model"),
        ({"model": "none", "prompt": "a"}, 404, "model"),
        ({"model": "gaps"}, 400, "prompt"),
        ({"model": "gaps", "messages": [{"role": "user", "content": "a"}]}, 400, "model"),
        ({"model": "gaps", "prompt": "a", "truncate": 3}, 400, "truncate"),
        ({"model": "gaps", "prompt": "a b c d " * 40_000}, 400, "prompt"),
    ):
        found, answer = await post(platform, "/tokenize", body)
        assert (found, answer["error"]["param"]) == (status, param), answer
    found, answer = await post(platform, "/detokenize", {"model": "gaps", "tokens": [1, 10**9]})
    assert (found, answer["error"]["param"]) == (400, "tokens[1]")
