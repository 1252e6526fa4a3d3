"""Pools with keys of their own, through the whole platform: a hosted one on https, others, and an engine of ours."""

from __future__ import annotations

import asyncio
import functools
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import openai
import psutil
import pytest

from contracts.desired_state import Model, Pool, Replica
from contracts.errors import RouterUnavailable
from contracts.generation import Tier
from router.control.client import ControlClient
from slipstream.commands.options import running_settings
from tests.deployment import Deployment, deployment, free_port
from tests.e2e.upstream import Upstream, upstream
from tests.fakes.process import FakeEngineProcess, fake_engine
from tests.slipstream.deployment import run
from tests.waiting import eventually

TOKEN = "deployment-token-of-the-tests"
HOSTED_KEY, ROTATED_KEY, VARIABLE_KEY = "sk-hosted-0123", "sk-hosted-rotated-4567", "of-the-variable-89"
SECRETS = (HOSTED_KEY, ROTATED_KEY, VARIABLE_KEY)


class Place:
    """What a test finds: the platform, the engines behind it, and the file of the hosted one's key."""

    def __init__(self, hosted: Upstream, variable: Upstream, keyless: Upstream, ours: FakeEngineProcess) -> None:
        self.upstreams = {"hosted": hosted, "variable": variable, "keyless": keyless}
        self.ours = ours
        self.key_file = Path()
        self.platform: Deployment

    async def say(self, model: str) -> str | None:
        """What the model answers a customer."""
        async with openai.AsyncOpenAI(
            base_url=f"{self.platform.url}/v1", api_key=self.platform.key, max_retries=0
        ) as client:
            answer = await client.chat.completions.create(
                model=model, messages=[{"role": "user", "content": "Hello"}], max_tokens=4
            )
        return answer.choices[0].message.content

    async def served(self, model: str) -> bool:
        """Whether it answers; the router may not have polled its engine yet."""
        try:
            return bool(await self.say(model))
        except openai.APIStatusError:
            return False


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Certificate and key of a server called localhost."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(certificate),
         "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


@pytest.fixture(scope="module")
async def place(certificate: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    """The platform, once every model answers."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    async with (
        upstream(HOSTED_KEY, context) as hosted, upstream(VARIABLE_KEY) as variable, upstream("") as keyless,
        fake_engine(token=TOKEN) as ours,
    ):  # fmt: skip
        made = Place(hosted, variable, keyless, ours)
        made.key_file = tmp_path_factory.mktemp("keys") / "hosted.key"
        made.key_file.write_text(HOSTED_KEY)
        pools = [
            Pool("hosted", "openai", (Replica("hosted-1", hosted.url),), api_key_file=str(made.key_file)),
            Pool("variable", "openai", (Replica("variable-1", variable.url),), api_key_env="TEST_UPSTREAM_KEY"),
            Pool("keyless", "openai", (Replica("keyless-1", keyless.url),), api_key_required=False),
            Pool("ours", "sglang", (Replica("ours-1", ours.url),)),
        ]
        models = [Model(pool.name, Tier.CHAT, pool.name, 4_096) for pool in pools]
        environment = {
            "SLIPSTREAM_MODELS": msgspec.json.encode(models).decode(),
            "SLIPSTREAM_POOLS": msgspec.json.encode(pools).decode(),
            "TEST_UPSTREAM_KEY": VARIABLE_KEY,
            "SSL_CERT_FILE": str(certificate[0]),
        }
        async with deployment(environment=environment, token=TOKEN) as made.platform:
            for pool in pools:
                await eventually(functools.partial(made.served, pool.name))
            yield made


async def test_each_engine_is_sent_its_pools_key_and_no_other(place: Place) -> None:
    for name, expected in (("hosted", f"Bearer {HOSTED_KEY}"), ("variable", f"Bearer {VARIABLE_KEY}"), ("keyless", "")):
        assert await place.say(name) == "Bonjour"
        seen = place.upstreams[name]
        assert seen.authorizations == {expected}
        # the router's polls and the gateway's request alike
        assert {path for path, _ in seen.seen} == {"/v1/models", "/v1/chat/completions"}
    assert await place.say("ours")
    for record in await place.ours.recorded():
        assert record["headers"]["authorization"] == f"Bearer {TOKEN}"


async def test_a_key_is_nowhere_but_in_its_file_and_the_requests(place: Place) -> None:
    await place.say("hosted")
    data = place.platform.data
    for file in (*data.glob("*"), *data.glob("run/*"), *data.glob("logs/*"), *data.glob("journal/*/*")):
        if file.is_file():
            content = file.read_bytes()
            assert not [secret for secret in SECRETS if secret.encode() in content], file
    async with place.platform.database() as database:
        [(document,)] = await database.fetch("SELECT document::text FROM gateway.desired_states")
        assert str(place.key_file) in document
        assert "TEST_UPSTREAM_KEY" in document
        assert not [secret for secret in SECRETS if secret in document]
    for status in (await place.platform.processes()).values():
        command = " ".join(psutil.Process(status["pid"]).cmdline())
        assert not [secret for secret in (*SECRETS, TOKEN) if secret in command]
    shown = await place.platform.command("config", "show")
    assert not [secret for secret in SECRETS if secret in shown]


async def test_a_replaced_key_file_is_in_use_without_a_restart(place: Place) -> None:
    hosted = place.upstreams["hosted"]
    before = await place.platform.processes()
    try:
        hosted.key = ROTATED_KEY
        hosted.seen.clear()
        aside = place.key_file.with_name("rotated.key")
        aside.write_text(ROTATED_KEY)
        aside.rename(place.key_file)
        await eventually(lambda: place.served("hosted"))
        assert ("/v1/chat/completions", f"Bearer {ROTATED_KEY}") in hosted.seen
        assert hosted.authorizations <= {f"Bearer {HOSTED_KEY}", f"Bearer {ROTATED_KEY}"}
        after = await place.platform.processes()
        assert {name: one["pid"] for name, one in after.items()} == {name: one["pid"] for name, one in before.items()}
    finally:
        hosted.key = HOSTED_KEY
        hosted.seen.clear()
        place.key_file.write_text(HOSTED_KEY)
        await eventually(lambda: place.served("hosted"))
        hosted.seen.clear()


async def test_the_engines_token_opens_no_router(place: Place) -> None:
    address = running_settings(None, str(place.platform.data)).control_address
    for token in (TOKEN, *SECRETS):
        with ControlClient(address, token) as control, pytest.raises(RouterUnavailable, match="refused"):
            await asyncio.to_thread(control.fleet)
    with ControlClient(address, (place.platform.data / "router.reader.token").read_text()) as control:
        assert (await asyncio.to_thread(control.fleet)).gateways == 1
    assert "hosted-1" in await place.platform.command("router", "explain", await _request_id(place))


async def _request_id(place: Place) -> str:
    async with openai.AsyncOpenAI(base_url=f"{place.platform.url}/v1", api_key=place.platform.key) as client:
        answer = await client.chat.completions.with_raw_response.create(
            model="hosted", messages=[{"role": "user", "content": "Hello"}], max_tokens=4
        )
    return answer.headers["x-request-id"]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"api_key_file": "/nowhere/upstream.key"}, "pools.hosted.api_key_file: no key can be read from /nowhere/"),
        ({"api_key_env": "TEST_KEY_THAT_IS_NOT_SET"}, "TEST_KEY_THAT_IS_NOT_SET is not set; set it"),
        ({}, "pools.hosted: the deployment's token would be sent to https://api.example.com"),
    ],
)
def test_a_key_that_cannot_be_had_stops_every_process_with_one_sentence(
    data_folder: Path, fields: dict[str, Any], told: str
) -> None:
    pool = Pool("hosted", "openai", (Replica("hosted-1", "https://api.example.com"),), **fields)
    environment = {
        "SLIPSTREAM_MODELS": msgspec.json.encode([Model("m", Tier.CHAT, "hosted", 4_096)]).decode(),
        "SLIPSTREAM_POOLS": msgspec.json.encode([pool]).decode(),
        "SLIPSTREAM_GATEWAY__PORT": str(free_port()),
    }
    for command in ("up", "router", "gateway", "worker"):
        result = run(command, "--data", str(data_folder), env=environment)
        assert result.returncode == 2, (command, result.stderr)
        [line] = [line for line in result.stderr.splitlines() if line.startswith("slipstream: ")]
        assert told in line, command
