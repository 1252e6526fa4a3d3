"""Every client's request is answered so that the client shows what the model wrote.

Written down from recordings of the clients themselves: `llama_vim*` (Vim 9.0) and `tabby_agent` (npm, 1.5.0). All
others are written from the clients' sources, `tabby_agent_context` with what newer agents add, and `copilot` from
memory of them. Bodies are sent as compact JSON with the fields in the client's order, which need not be its bytes. How
each client reads its answer is in `clients.py`; Continue's library and Tabby's agent themselves run in `live/`.
"""

from __future__ import annotations

import msgspec
import pytest

from tests.autocomplete.asked import engine_record, sides
from tests.autocomplete.clients import READERS
from tests.autocomplete.fixture import Fixture, fixture, names
from tests.gateway.slow_platform import SlowPlatform

MODEL = "gaps"


async def replay(platform: SlowPlatform, told: Fixture) -> tuple[str, str, bytes]:
    """The answer's request id, content type and body."""
    await platform.engine.control(texts=told.texts, tokens=len(told.texts))
    try:
        async with platform.session.post(
            platform.url + told.path, data=msgspec.json.encode(told.body), headers=told.headers
        ) as response:
            raw = await response.read()
            assert response.status == 200, raw
            return response.headers["x-request-id"], response.headers["content-type"], raw
    finally:
        await platform.engine.control(texts=(), tokens=16)


@pytest.mark.parametrize("name", names())
async def test_each_client_shows_what_the_model_wrote(platform: SlowPlatform, name: str) -> None:
    told = fixture(name, platform.key, MODEL)
    request_id, kind, raw = await replay(platform, told)
    assert READERS[told.reader](told.body, kind, raw) == told.shown
    asked = (await engine_record(platform, request_id))["body"]
    prefix, suffix = sides(asked["prompt"])
    assert prefix.endswith(told.prefix)
    assert suffix == told.suffix
    if told.limit is not None:
        assert asked["max_tokens"] == told.limit


@pytest.mark.parametrize("name", names())
async def test_each_client_is_metered_like_any_other(platform: SlowPlatform, name: str) -> None:
    told = fixture(name, platform.key, MODEL)
    request_id, _, _ = await replay(platform, told)
    charge = await platform.charge(request_id)
    record = await engine_record(platform, request_id)
    assert (charge["model"], charge["tier"], charge["status"]) == (MODEL, "autocomplete", 200)
    assert (charge["prompt_tokens"], charge["completion_tokens"]) == (record["prompt_tokens"], record["tokens"])


@pytest.mark.parametrize("name", names())
async def test_a_key_in_its_own_header_is_enough(platform: SlowPlatform, name: str) -> None:
    told = fixture(name, platform.key, MODEL)
    headers = {header: value for header, value in told.headers.items() if header != "authorization"}
    told = msgspec.structs.replace(told, headers={**headers, "x-api-key": platform.key})
    _, kind, raw = await replay(platform, told)
    assert READERS[told.reader](told.body, kind, raw) == told.shown
