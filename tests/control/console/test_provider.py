"""Requests to an identity provider are few, although any client may begin a sign-in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from control.console.oidc.identity import ProviderUnavailable
from control.console.oidc.provider import FAILED_FOR_S, Provider
from control.sessions.config import OidcConfig

ISSUER = "https://id.example"
DESCRIPTION = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/authorize",
    "token_endpoint": f"{ISSUER}/token",
    "jwks_uri": f"{ISSUER}/keys",
}


class Asked:
    def __init__(self) -> None:
        self.status = 200
        self.count = 0
        self.may_answer = asyncio.Event()
        self.now_s = 0.0
        self.provider = Provider(OidcConfig(issuer=ISSUER, client_id="slipstream"), {}, lambda: self.now_s)
        self.provider._http = httpx.AsyncClient(transport=httpx.MockTransport(self._answer))

    async def _answer(self, _: httpx.Request) -> httpx.Response:
        self.count += 1
        await self.may_answer.wait()
        return httpx.Response(self.status, json=DESCRIPTION)

    async def start(self) -> str:
        return await self.provider.address("http://here/callback", "state", "nonce", "v" * 43)


@pytest.fixture
async def asked() -> AsyncIterator[Asked]:
    made = Asked()
    yield made
    await made.provider.stop()


async def test_all_who_come_while_it_is_asked_wait_for_one_answer(asked: Asked) -> None:
    """Fault: each stranger's click was a question of its own."""
    waiting = [asyncio.create_task(asked.start()) for _ in range(50)]
    await asyncio.sleep(0)
    asked.may_answer.set()
    assert all(address.startswith(f"{ISSUER}/authorize?") for address in await asyncio.gather(*waiting))
    assert asked.count == 1
    assert await asked.start()
    assert asked.count == 1


async def test_one_that_fails_is_left_alone_for_some_seconds(asked: Asked) -> None:
    asked.status = 503
    asked.may_answer.set()
    answers = await asyncio.gather(*(asked.start() for _ in range(50)), return_exceptions=True)
    assert {type(answer) for answer in answers} == {ProviderUnavailable}
    assert asked.count == 1
    asked.status = 200
    asked.now_s = FAILED_FOR_S - 0.1
    with pytest.raises(ProviderUnavailable):
        await asked.start()
    asked.now_s = FAILED_FOR_S
    assert await asked.start()
    assert asked.count == 2


async def test_a_sign_in_that_leaves_does_not_end_the_shared_request(asked: Asked) -> None:
    first = asyncio.create_task(asked.start())
    await asyncio.sleep(0)
    second = asyncio.create_task(asked.start())
    await asyncio.sleep(0)
    first.cancel()
    asked.may_answer.set()
    assert (await second).startswith(ISSUER)
