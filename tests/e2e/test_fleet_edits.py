"""The fleet is changed by commands under load: an alias moves to a model on other engines, and no request fails."""

from __future__ import annotations

import asyncio
import contextlib

import aiohttp
import pytest

from tests.deployment import deployment, fake_fleet
from tests.fakes.process import fake_engine

TOKEN = "token-of-the-fleet-tests"
BODY = {"model": "busy", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}


@pytest.mark.nightly
async def test_an_alias_moves_to_other_engines_under_load_and_no_request_fails() -> None:
    async with fake_engine(token=TOKEN) as old, fake_engine(token=TOKEN) as new:
        environment = fake_fleet(old.url)
        async with deployment(options=["--gateways", "2"], environment=environment, token=TOKEN) as running:
            await running.command("fleet", "models", "alias", "busy", "fake")
            headers = {"authorization": f"Bearer {running.key}"}
            answered: list[str] = []
            async with aiohttp.ClientSession(running.url, headers=headers) as session:

                async def ask() -> str:
                    async with session.post("/v1/chat/completions", json=BODY) as response:
                        assert response.status == 200, await response.text()
                        await response.json()
                        return response.headers["x-request-id"]

                async def load() -> None:
                    while True:
                        answered.append(await ask())

                await ask()
                tasks = [asyncio.create_task(load()) for _ in range(4)]
                try:
                    await running.command(
                        "fleet", "pools", "set", "green", "--driver", "sglang", "--replica", f"g0={new.url}"
                    )
                    await running.command(
                        "fleet", "models", "set", "fresh", "--tier", "chat", "--pool", "green",
                        "--context-tokens", "4096", "--engine-model", "fake",
                    )  # fmt: skip
                    said = await running.command("fleet", "models", "alias", "busy", "fresh")
                    assert "served by: " in said
                    assert "not yet by" not in said
                    moved = [await ask() for _ in range(8)]
                    before = len(answered)
                    await running.command("fleet", "models", "remove", "fake")
                    await running.command("fleet", "pools", "remove", "fake")
                    moved += [await ask() for _ in range(8)]
                    assert len(answered) > before
                    assert not any(task.done() for task in tasks), "a request failed"
                finally:
                    for task in tasks:
                        task.cancel()
                    for task in tasks:
                        with contextlib.suppress(asyncio.CancelledError):
                            await task
            assert {row["replica_id"] for row in await running.ledger(*moved)} == {"g0"}
            assert {row["replica_id"] for row in await running.ledger(answered[0])} == {"fake-0"}
