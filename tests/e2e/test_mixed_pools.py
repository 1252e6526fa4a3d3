"""One file, three kinds of engines: embedded ones that `up` starts, an SGLang, and a hosted service with a key of its
own. All are served; each is killed in turn, and the others do not notice."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest

from engines.drivers.base import EngineRequest
from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey
from engines.performance.model_folder import read_shape
from tests.deployment import ROOT, Deployment, deployment
from tests.e2e.upstream import Upstream, upstream
from tests.fakes.process import fake_engine
from tests.sglang.server import sglang_process
from tests.waiting import eventually

TOKEN, HOSTED_KEY = "deployment-token-of-the-tests", "sk-hosted-0123"
EVENTS = 'kv_events = { endpoint = "tcp://127.0.0.1:*", replay_endpoint = "tcp://127.0.0.1:*" }'
SETTINGS = """
[[models]]
name = "own-chat"
tier = "chat"
pool = "chat"
context_tokens = 2_048

[[models]]
name = "own-code"
tier = "autocomplete"
pool = "code"
context_tokens = 4_096

[[models]]
name = "radix"
tier = "chat"
pool = "sglang"
context_tokens = 1_024
engine_model = "tiny"

[[models]]
name = "hosted"
tier = "chat"
pool = "hosted"
context_tokens = 4_096

[[pools]]
name = "chat"
driver = "embedded"
hardware = "one core"

[pools.engine]
model = "slipstream-chat"
dtype = "float32"
kv = {{ budget_bytes = 67_108_864 }}
scheduler = {{ max_batch_tokens = 256 }}
{events}

[[pools]]
name = "code"
driver = "embedded"
local_replicas = 2

[pools.engine]
model = "slipstream-code"
context_tokens = 4_096
quantization = "int8"
speculation = {{ method = "ngram" }}
{events}

[[pools]]
name = "sglang"
driver = "sglang"
replicas = [{{ id = "sglang-1", url = "{sglang}" }}]

[[pools]]
name = "hosted"
driver = "openai"
api_key_file = "{key_file}"
replicas = [{{ id = "hosted-1", url = "{hosted}" }}]

[router]
probe_timeout_s = 10.0
"""
CHAT_MODELS = ("own-chat", "radix", "hosted")
REFUSALS = {(502, "engine_failed"), (503, "overloaded"), (503, "no_engine_available")}


class Place:
    """The platform, and what stands behind it. kill_sglang, kill_hosted: end these, as a crash would."""

    def __init__(self, platform: Deployment, hosted: Upstream, kill_sglang: Callable[[], Awaitable[None]]) -> None:
        self.platform, self.hosted, self.kill_sglang = platform, hosted, kill_sglang
        self.client = openai.AsyncOpenAI(base_url=f"{platform.url}/v1", api_key=platform.key, max_retries=0)

    async def say(self, model: str) -> str:
        """A streamed answer; of the code model a completion."""
        if model == "own-code":
            filled = await self.client.completions.create(
                model=model, prompt="def add(a, b):\n", suffix="\n", max_tokens=8
            )
            return filled.choices[0].text
        stream = await self.client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "What is the capital of France?"}], max_tokens=8,
            stream=True,
        )  # fmt: skip
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])

    async def refusal(self, model: str) -> openai.APIStatusError | None:
        """What the customer is told instead of an answer; None: it is served."""
        try:
            assert await self.say(model)
        except openai.APIStatusError as refused:
            return refused
        return None

    async def serves(self, model: str) -> bool:
        return await self.refusal(model) is None

    async def refuses(self, model: str) -> bool:
        return await self.refusal(model) is not None

    async def fleet(self) -> dict[str, dict[str, Any]]:
        """Every replica as the router sees it, by its id; one that is not usable is no fault here."""
        seen = msgspec.json.decode(await self.platform.command("fleet", "--json", accept=(0, 1)))
        return {each["id"]: each for pool in seen["pools"] for each in pool["replicas"]}

    async def asked(self, replica_id: str, method: str, path: str) -> Any:
        """What an engine says itself."""
        connections = EngineConnections(OneKey((self.platform.data / "token").read_text()))
        try:
            url = (await self.fleet())[replica_id]["url"]
            status, body = await connections.fetch(url, EngineRequest(method, path), 30)
        finally:
            await connections.close()
        assert status == 200, body
        return msgspec.json.decode(body) if path == "/server_info" else body


@contextlib.asynccontextmanager
async def _place(sglang_url: str, kill_sglang: Callable[[], Awaitable[None]], folder: Path) -> AsyncIterator[Place]:
    key_file = folder / "hosted.key"
    key_file.write_text(HOSTED_KEY)
    settings = folder / "slipstream.toml"
    async with upstream(HOSTED_KEY) as hosted:
        settings.write_text(SETTINGS.format(sglang=sglang_url, hosted=hosted.url, key_file=key_file, events=EVENTS))
        async with deployment(options=["--config", str(settings)], token=TOKEN) as platform:
            place = Place(platform, hosted, kill_sglang)
            async with place.client:
                for model in ("own-chat", "own-code", "radix", "hosted"):
                    await eventually(functools.partial(place.serves, model))
                yield place


@pytest.fixture(scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    """In front of an engine that speaks SGLang's dialect."""
    async with fake_engine(token=TOKEN, model="tiny") as engine:

        async def kill() -> None:
            engine.kill()

        async with _place(engine.url, kill, tmp_path_factory.mktemp("mixed")) as made:
            yield made


@pytest.mark.nightly
async def test_two_pools_engines_run_by_settings_of_their_own_and_status_shows_all(place: Place) -> None:
    chat = await place.asked("engine-chat-1", "GET", "/server_info")
    codes = [await place.asked(f"engine-code-{number}", "GET", "/server_info") for number in (1, 2)]
    told = ("dtype", "quantization", "speculative_algorithm", "page_size", "chunked_prefill_size", "context_length")
    assert [chat[name] for name in told] == ["float32", None, None, 16, 256, 4_608]
    assert [[code[name] for name in told] for code in codes] == [["bfloat16", "int8", "NGRAM", 16, 512, 4_096]] * 2
    page_bytes = int(read_shape(ROOT / "models" / "slipstream-chat").kv_bytes_per_token) * 4 * 16
    assert chat["max_total_num_tokens"] == 67_108_864 // page_bytes * 16
    assert len({each["kv_events"]["endpoint"] for each in (chat, *codes)}) == 3
    processes = await place.platform.processes()
    assert {name for name in processes if name.startswith("engine")} == {
        "engine-chat-1", "engine-code-1", "engine-code-2"
    }  # fmt: skip
    assert set(await place.fleet()) == {"engine-chat-1", "engine-code-1", "engine-code-2", "sglang-1", "hosted-1"}
    assert "embedded engine on one core, 1 replica" in place.platform.output
    assert "sglang engine, 1 replica" in place.platform.output
    targets = msgspec.json.decode((place.platform.data / "prometheus" / "targets.json").read_bytes())
    assert {each["labels"]["instance"] for each in targets} >= {"engine-chat-1", "engine-code-1", "engine-code-2"}


@pytest.mark.nightly
async def test_what_each_of_several_engines_tells_of_its_cache_reaches_the_router(place: Place) -> None:
    """A cache that is flushed behind the router's back is known to be empty, which nothing but its events can tell."""

    async def held(replica_id: str) -> int:
        return int((await place.fleet())[replica_id].get("prefix_blocks", 0))

    async def ask_both() -> bool:
        for _ in range(4):
            await place.client.completions.create(
                model="own-code", prompt=os.urandom(8).hex() + "\nimport os\n" * 30, max_tokens=1
            )
        return min([await held("engine-code-1"), await held("engine-code-2")]) > 0

    await place.client.chat.completions.create(
        model="own-chat", messages=[{"role": "user", "content": "Say it again. " * 40}], max_tokens=1
    )
    await eventually(ask_both)
    for replica_id in ("engine-code-1", "engine-chat-1", "engine-code-2"):
        assert await held(replica_id) > 0

        async def flushed(replica_id: str = replica_id) -> bool:
            return await held(replica_id) == 0

        await place.asked(replica_id, "POST", "/flush_cache")
        await eventually(flushed)


@pytest.mark.nightly
async def test_each_kind_of_engine_may_die_and_the_others_serve_on(place: Place) -> None:
    await _killed_in_turn(place)


@pytest.mark.sglang
async def test_so_it_is_beside_the_real_sglang(tmp_path: Path) -> None:
    async with (
        sglang_process(ROOT / "models" / "slipstream-chat", "tiny", TOKEN) as process,
        _place(process.server.url, process.kill, tmp_path) as place,
    ):
        await _killed_in_turn(place)


async def _killed_in_turn(place: Place) -> None:
    await _others_serve_while(place)
    assert place.hosted.authorizations == {f"Bearer {HOSTED_KEY}"}

    # a child of `up`: comes back by itself, with the settings of its pool
    before = await place.asked("engine-chat-1", "GET", "/server_info")
    await place.platform.kill("engine-chat-1")
    await _others_serve_while(place, "own-chat")
    await eventually(functools.partial(place.serves, "own-chat"))
    after = await place.asked("engine-chat-1", "GET", "/server_info")
    assert (after["page_size"], after["kv_events"]) == (before["page_size"], before["kv_events"])

    place.hosted.key = "sk-another"  # the account is closed: every request is refused there
    await _refused(place, "hosted")
    await _others_serve_while(place, "hosted")
    place.hosted.key = HOSTED_KEY
    await eventually(functools.partial(place.serves, "hosted"))

    await place.hosted.stop()
    await _refused(place, "hosted")
    await _others_serve_while(place, "hosted")

    await place.kill_sglang()
    await _refused(place, "radix")
    await _others_serve_while(place, "radix", "hosted")


async def _others_serve_while(place: Place, *dead: str) -> None:
    others = [model for model in (*CHAT_MODELS, "own-code") if model not in dead]
    assert all(await asyncio.gather(*map(place.serves, others)))


async def _refused(place: Place, model: str) -> None:
    """The customer is told of our engine, never of a fault of his: of one that failed, then that there is none."""

    async def settled() -> bool:
        refused = await place.refusal(model)
        assert refused is not None
        assert (refused.status_code, refused.code) in REFUSALS, refused.message
        return refused.code == "no_engine_available"

    await eventually(functools.partial(place.refuses, model))
    await eventually(settled)
