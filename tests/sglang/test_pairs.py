"""A pair of the real SGLang's engines through the driver: one computes prompts, the other answers, and keys and values
go between them by Mooncake over TCP. Skipped where SGLang's environment has no Mooncake (`docs/log.md` says how it is
installed on a machine without CUDA). What is handed over needs an accelerator: SGLang asks for pinned memory then.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec
import pytest

from contracts.errors import EngineRefused, SlipstreamError
from contracts.generation import Bootstrap, ChatPrompt, Generation
from contracts.lease import Engine
from engines.drivers.error_bodies import TransferFailed, event_error, usage_of
from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey
from gateway.serving.prefill import bootstrap
from tests.real_engine import GUARD_S, ask, finishes, payloads, read_all
from tests.sglang.client import CHAT, DRIVER, Client
from tests.sglang.server import MODELS, SGLangProcess, free_port, settings, sglang_process

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(1_800)]
FOLDER = MODELS / "slipstream-chat"
WITHOUT_HOST_POOL = ("--disaggregation-decode-retraction-backup", "cpu_tensor")
"""By default a decode engine keeps what it pauses in a pool of host memory, which asks for 10 GiB to be left free."""
FAKE = Bootstrap("2.2.2.2", 8_998, 7)
"""The host by which SGLang warms its own halves up: nothing is handed over for such a request."""
handed_over = pytest.mark.skipif(
    shutil.which("nvidia-smi") is None, reason="a prefill engine without an accelerator ends: no pinned memory"
)
LONG = ChatPrompt(({"role": "user", "content": "Count: " + " ".join(str(number) for number in range(150))},))


class Pair(NamedTuple):
    """Both halves, and how a request's halves meet."""

    prefill: Client
    decode: Client
    prefill_process: SGLangProcess
    bootstrap_port: int

    def met(self, generation: Generation) -> Generation:
        """The request with the fields that both halves get."""
        engine = Engine("p", self.prefill.server.url, "sglang", "tiny", "p", self.bootstrap_port)
        return msgspec.structs.replace(generation, bootstrap=bootstrap(engine))

    async def both(self, generation: Generation) -> tuple[list[object], list[object]]:
        """The events of the prefill and of the decode engine."""
        met = self.met(generation)
        first, second = await asyncio.wait_for(
            asyncio.gather(self.prefill.events(met), self.decode.events(met)), GUARD_S
        )
        return first, second


def has_mooncake() -> bool:
    """In the environment of the engines, not in ours."""
    found = settings()
    return found is not None and any(
        (path / "mooncake").is_dir() or (path / "mooncake.pth").is_file()
        for path in found[0].glob("lib/python*/site-packages")
    )


@contextlib.asynccontextmanager
async def half(role: str, transfer: str, *flags: str) -> AsyncIterator[tuple[Client, SGLangProcess]]:
    """One engine of a pair, warm."""
    flags = ("--disaggregation-mode", role, "--disaggregation-transfer-backend", transfer, *flags)
    async with sglang_process(FOLDER, "tiny", "", *flags) as process:
        connections = EngineConnections(OneKey(""))
        try:
            yield Client(process.server, connections), process
        finally:
            await connections.close()


@contextlib.asynccontextmanager
async def both_halves() -> AsyncIterator[Pair]:
    """Two engines that hand keys and values over."""
    if not has_mooncake():
        pytest.skip("SGLang's environment has no Mooncake")
    port = free_port()
    bound = ("--disaggregation-bootstrap-port", str(port))
    async with (
        half("prefill", "mooncake_tcp", *bound) as (prefill, process),
        half("decode", "mooncake_tcp", *WITHOUT_HOST_POOL) as (decode, _),
    ):
        yield Pair(prefill, decode, process, port)


@pytest.fixture(scope="module")
async def pair() -> AsyncIterator[Pair]:
    """Of all tests but the one that kills an engine."""
    async with both_halves() as pair:
        yield pair


@handed_over
async def test_an_answer_is_the_same_as_of_one_engine_and_tells_all_of_the_prompt(pair: Pair) -> None:
    first, second = await pair.both(ask(CHAT))
    assert finishes(first) == finishes(second) == ["length"]
    told, computed = (usage_of(msgspec.convert(events[-2], dict)["usage"]) for events in (second, first))
    assert told.prompt_tokens == computed.prompt_tokens > 0
    assert (told.completion_tokens, computed.completion_tokens) == (8, 1)
    again = text_of((await pair.both(ask(CHAT)))[1])
    assert again == text_of(second), "what was handed over is what was computed"
    assert "France" in again or "Paris" in again, again


@handed_over
async def test_prompts_longer_than_what_is_cached_are_handed_over_whole(pair: Pair) -> None:
    whole = text_of((await pair.both(ask(LONG)))[1])
    first, second = await pair.both(ask(LONG))
    cached = usage_of(msgspec.convert(first[-2], dict)["usage"]).cached_tokens
    assert cached > 0, "the prefill engine keeps prefixes"
    assert text_of(second) == whole


@handed_over
async def test_requests_at_once_meet_in_rooms_of_their_own(pair: Pair) -> None:
    asked = [ask(CHAT), ask(LONG), ask(CHAT), ask(LONG)]
    texts = [text_of(second) for _, second in await asyncio.gather(*(pair.both(each) for each in asked))]
    assert texts[0] == texts[2] != texts[1] == texts[3]


@pytest.mark.parametrize("role", ["decode", "prefill"])
async def test_a_request_without_a_room_is_refused(pair: Pair, role: str) -> None:
    error = await failure(getattr(pair, role), ask(CHAT))
    assert isinstance(error, EngineRefused), error


async def test_one_whose_prompt_never_comes_waits_and_is_ended_by_its_id(pair: Pair) -> None:
    waiting = pair.met(ask(CHAT))
    answer = asyncio.create_task(failure(pair.decode, waiting))
    status = 0
    async with asyncio.timeout(GUARD_S):
        while not answer.done():
            status, _ = await pair.decode.fetch(DRIVER.abort(waiting.request_id))
            await asyncio.wait({answer}, timeout=0.5)
    assert status == 200
    await answer
    await pair.decode.idle()


@pytest.mark.parametrize(("role", "tokens"), [("decode", 8), ("prefill", 1)])
async def test_each_half_answers_its_part_of_our_requests(pair: Pair, role: str, tokens: int) -> None:
    engine: Client = getattr(pair, role)
    events = await engine.events(msgspec.structs.replace(ask(CHAT), bootstrap=FAKE))
    assert finishes(events) == ["length"]
    assert usage_of(events[-2]["usage"]).completion_tokens == tokens


async def test_a_prefill_engine_that_is_gone_is_what_the_decode_engine_tells() -> None:
    async with both_halves() as pair:
        await pair.prefill_process.kill()
        error = await asyncio.wait_for(failure(pair.decode, pair.met(ask(CHAT))), GUARD_S)
        assert isinstance(error, TransferFailed), error


async def test_a_prefill_engine_does_not_start_with_the_fake_transfer() -> None:
    with pytest.raises(AssertionError, match="does not support 'fake' as the transfer backend"):
        async with half("prefill", "fake"):
            pass


def text_of(events: list[object]) -> str:
    """Of a streamed chat."""
    chunks = [msgspec.convert(event, dict) for event in events if event != b"[DONE]"]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


async def failure(engine: Client, generation: Generation) -> SlipstreamError:
    """What the driver makes of an answer that ends in an error, or is one."""
    stream = await engine.open(generation)
    body = await read_all(stream)
    if stream.status != 200:
        return DRIVER.error(stream.status, body)
    told = [event for event in payloads(body) if isinstance(event, dict) and "error" in event]
    assert told, body
    return event_error(msgspec.json.encode(told[0]), DRIVER.error)
