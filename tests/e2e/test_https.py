"""A deployment that speaks HTTPS itself: what it prints, what its processes ask each other, what the SDK sees."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from pathlib import Path

import openai
import pytest

from tests.certificates import write_certificate
from tests.deployment import Deployment, deployment, fake_fleet
from tests.e2e.conftest import TOKEN
from tests.fakes.process import FakeEngineProcess


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate and its key."""
    pair = tmp_path / "certificate.pem", tmp_path / "key.pem"
    write_certificate(*pair)
    return pair


async def test_a_deployment_with_a_certificate_speaks_https_to_everybody(
    fresh_engines: list[FakeEngineProcess], files: tuple[Path, Path]
) -> None:
    certificate, key = files
    environment = {
        **fake_fleet(fresh_engines[0].url),
        # relative to where `up` was started
        "SLIPSTREAM_GATEWAY__TLS__CERTIFICATE_FILE": os.path.relpath(certificate),  # noqa: ASYNC240
        "SLIPSTREAM_GATEWAY__TLS__KEY_FILE": os.path.relpath(key),  # noqa: ASYNC240
        "SLIPSTREAM_GATEWAY__TLS__RELOAD_INTERVAL_S": "0.1",
    }
    async with deployment(environment=environment, token=TOKEN) as running:
        url = f"https://127.0.0.1:{running.port}"
        assert re.search(rf"Slipstream is up +{url} ", running.output)
        assert f"curl -N {url}/v1/" in running.output
        assert (await running.processes())["gateway-1"]["url"] == url
        assert "ready" in running.output, "the probes ask over TLS"
        old = ssl.get_server_certificate(("127.0.0.1", running.port))
        async with _client(running, certificate) as client:
            assert await _streamed(client)
            write_certificate(certificate, key)
            while ssl.get_server_certificate(("127.0.0.1", running.port)) == old:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            assert await _streamed(client), "on the connection from before"
        async with _client(running, certificate) as client:
            assert await _streamed(client)


def _client(running: Deployment, certificate: Path) -> openai.AsyncOpenAI:
    trusting = openai.DefaultAsyncHttpxClient(verify=ssl.create_default_context(cafile=str(certificate)))
    return openai.AsyncOpenAI(
        base_url=f"https://127.0.0.1:{running.port}/v1", api_key=running.key, max_retries=0, http_client=trusting
    )


async def _streamed(client: openai.AsyncOpenAI) -> str:
    stream = await client.chat.completions.create(
        model="fake", messages=[{"role": "user", "content": 'mock:{"tokens":4}'}], stream=True
    )
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
