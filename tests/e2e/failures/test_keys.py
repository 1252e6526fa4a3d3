"""Keys that must not work: never issued, revoked while in use on every gateway, expired."""

from __future__ import annotations

import contextlib
import functools
import time
from typing import Any

import httpx2
import openai
import pytest

from gateway.auth.keys import mint
from tests.deployment import Deployment
from tests.e2e.failures.processes import fresh_connections, gateway_of
from tests.fakes.process import FakeEngineProcess
from tests.waiting import GUARD_S, eventually

BODY: dict[str, Any] = {"model": "fake", "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 2}


async def test_a_well_formed_key_that_was_never_issued(faked: Deployment) -> None:
    async with openai.AsyncOpenAI(
        base_url=f"{faked.url}/v1", api_key=mint(b"another deployment's pepper").secret, max_retries=2,
        http_client=fresh_connections(),
    ) as stranger:  # fmt: skip
        for _ in range(4):
            with pytest.raises(openai.AuthenticationError) as refused:
                await stranger.chat.completions.create(model="fake", messages=BODY["messages"])
            assert (refused.value.code, refused.value.type) == ("invalid_api_key", "authentication_error")
            assert refused.value.response.headers["www-authenticate"] == "Bearer"
            with pytest.raises(openai.AuthenticationError):
                await stranger.models.list()


async def refused(connection: httpx2.AsyncClient, url: str) -> httpx2.Response | None:
    """The answer, unless it is a completion."""
    answer = await connection.post(url, json=BODY)
    return None if answer.status_code == 200 else answer


async def test_a_revoked_key_is_refused_by_every_gateway_that_has_it_in_memory(
    faked: Deployment, fresh_engines: list[FakeEngineProcess]
) -> None:
    key = await faked.make_key("--name", "soon-revoked")
    headers = {"Authorization": f"Bearer {key}"}
    async with contextlib.AsyncExitStack() as stack:
        connections: dict[str, httpx2.AsyncClient] = {}
        while len(connections) < 2:  # one kept open to each gateway, so that each has the key in memory
            connection = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=GUARD_S))
            async with connection.stream("POST", f"{faked.url}/v1/chat/completions", json=BODY) as response:
                assert response.status_code == 200
                connections.setdefault(gateway_of(faked, response), connection)
                await response.aread()
        await faked.command("keys", "revoke", "soon-revoked")
        for connection in connections.values():
            # within how long is tests/gateway/auth/test_revocation_bound.py's
            answer = await eventually(functools.partial(refused, connection, f"{faked.url}/v1/chat/completions"))
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "revoked_api_key")
        # for good, on fresh connections too, and on every endpoint
        async with openai.AsyncOpenAI(
            base_url=f"{faked.url}/v1", api_key=key, max_retries=0, http_client=fresh_connections()
        ) as client:
            for _ in range(4):
                with pytest.raises(openai.AuthenticationError):
                    await client.chat.completions.create(**BODY)
                with pytest.raises(openai.AuthenticationError):
                    await client.models.list()


async def test_a_key_ends_when_it_was_said_to(faked: Deployment, fresh_engines: list[FakeEngineProcess]) -> None:
    key = await faked.make_key("--name", "brief", "--expires-days", "1")
    async with faked.database() as database:
        # not by the command, which may take longer than this
        expires_at = await database.fetchval(
            "UPDATE gateway.api_keys SET expires_at = now() + interval '1.5 seconds' WHERE name = 'brief'"
            " RETURNING expires_at"
        )
    end_s = expires_at.timestamp()
    async with openai.AsyncOpenAI(
        base_url=f"{faked.url}/v1", api_key=key, max_retries=0, http_client=fresh_connections()
    ) as client:
        refusals = 0
        while refusals < 6:
            asked_s = time.time()
            try:
                await client.chat.completions.create(**BODY)
            except openai.AuthenticationError as error:
                assert error.code == "expired_api_key"
                assert time.time() >= end_s
                refusals += 1
            else:
                assert asked_s < end_s
