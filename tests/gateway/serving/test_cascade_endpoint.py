"""An endpoint in front of a cascade: each model gets its own prompt, and only evals get what nobody has approved."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest

from gateway.auth.key_record import KeyRecord
from gateway.auth.scopes import Scope
from tests.gateway.served import served
from tests.gateway.serving.doors import endpoint_of
from tests.gateway.serving.harness import CHAT, KEY, body
from tests.gateway.serving.test_cascade import Cascading, cascading
from tests.gateway.serving.test_wire_seam import Parts

EVALS = msgspec.structs.replace(KEY, internal=True, scopes=frozenset({Scope.CHAT, Scope.EVALS}))


class TwoKeys(Parts):
    """A customer's key, and one of evals."""

    def __init__(self, to: Cascading) -> None:
        super().__init__(to.platform)
        self.catalog, self.cascades = to.platform.catalog, to.platform.cascades  # type: ignore[assignment]

    def cached(self, secret: str) -> KeyRecord:
        return {"customer": KEY, "evals": EVALS}[secret]


@contextlib.asynccontextmanager
async def endpoint(to: Cascading) -> AsyncIterator[Any]:
    """Asks with a key and a pool; tells status and which model answered."""
    async with served(endpoint_of(TwoKeys(to), CHAT, Scope.CHAT)) as server, aiohttp.ClientSession() as session:

        async def ask(key: str = "customer", pool: str = "", **fields: Any) -> tuple[int, str | None]:
            headers = {"authorization": f"Bearer {key}"} | ({"x-slipstream-pool": pool} if pool else {})
            url = f"http://127.0.0.1:{server.port}/v1/chat/completions"
            async with session.post(url, data=body(max_tokens=8, **fields), headers=headers) as response:
                await response.read()
                return response.status, response.headers.get("x-slipstream-answered-by")

        yield ask


@pytest.mark.parametrize("approve", [True, False])
async def test_customers_get_what_is_approved_and_evals_what_they_ask_for(approve: bool) -> None:
    async with cascading(approve=approve) as to, endpoint(to) as ask:
        assert await ask() == (200, "small" if approve else "big")
        assert await ask(stream=True) == (200, "small" if approve else "big")
        assert await ask("evals", "small") == (200, "small"), "the small model's pool stands for the cascade"
        assert await ask("evals", "big") == (200, "big")
        assert await ask("evals") == (200, "big"), "runs of a night are of the large model"
        assert (await ask("customer", "small"))[0] == 403
        billed = [record.billed for record in to.platform.journal.records]
        assert billed == [True, True, False, False, False]


async def test_each_model_is_asked_under_its_own_name() -> None:
    async with cascading(min_confidence=0.9) as to, endpoint(to) as ask:
        assert await ask() == (200, "big")
        (small,), (big,) = to.small.records.values(), to.big.records.values()
        asked_small, asked_big = msgspec.json.decode(small.body), msgspec.json.decode(big.body)
        assert (asked_small["model"], asked_small["logprobs"]) == ("small-engine", True)
        assert (asked_big["model"], "logprobs" in asked_big) == ("big-engine", False)
        assert small.rid != big.rid
        assert to.platform.limiter.settled.total() == 1


async def test_each_model_has_its_prompt_counted_by_its_own_tokenizer() -> None:
    async with cascading(min_confidence=0.9, approve=False) as to, endpoint(to) as ask:
        big, small = to.state(approve=False).models
        small = msgspec.structs.replace(small, tokenizer="models/slipstream-chat")
        await to.platform.catalog.load(msgspec.structs.replace(to.state(approve=False), models=(big, small)))
        assert await ask("evals", "small") == (200, "big")
        first, second = (record.opened for record in to.platform.journal.records)
        assert (first.model, second.model) == ("small", "big")
        assert first.prompt_tokens_estimate != second.prompt_tokens_estimate
