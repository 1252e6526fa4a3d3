"""The script that holds a real server against the list says "ok" of the one that our tests run against, and finds what
differs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.fakes.tensorrt_llm import KNOWN, Generation, fake_tensorrt_llm
from tests.fakes.tensorrt_llm_front import fake_front

SCRIPT = Path(__file__).parents[2] / "infra" / "verify" / "tensorrt_llm.sh"
pytestmark = pytest.mark.nightly


async def verified(url: str, *model: str) -> tuple[int, str]:
    """Its exit status and what it wrote."""
    process = await asyncio.create_subprocess_exec(str(SCRIPT), url, *model, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


@pytest.mark.parametrize("era", ["1.2", "1.4"])
async def test_the_imitation_does_what_is_asked_of_the_real_one(era: Generation) -> None:
    async with fake_tensorrt_llm(era) as (fake, url):
        fake.script.tokens = 4_000
        fake.script.token_s = 0.001
        status, said = await verified(url)
    assert status == 0, said
    assert "DIFFERS" not in said
    assert said.count("ok ") >= 24


@pytest.mark.parametrize("era", ["1.2", "1.4"])
async def test_a_front_is_asked_for_what_a_front_does(era: Generation) -> None:
    async with fake_tensorrt_llm(era) as (_, worker), fake_front(era, [worker], [worker]) as (_, url):
        assert (await verified(url))[0] == 64, "it lists no models"
        status, said = await verified(url, "llama-70b")
    assert status == 0, said
    assert "DIFFERS" not in said
    assert said.count("ok ") >= 15


async def test_what_differs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KNOWN, "/v1/chat/completions", KNOWN["/v1/chat/completions"] - {"cache_salt"})
    async with fake_tensorrt_llm("1.4") as (fake, url):
        fake.script.tokens = 4_000
        fake.script.token_s = 0.001
        status, said = await verified(url)
    assert status > 0
    assert "DIFFERS chat does: expected 200, found 400" in said
