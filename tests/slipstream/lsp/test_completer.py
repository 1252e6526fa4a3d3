"""What is asked of a gateway and when, against one that answers as told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from slipstream.lsp.completer import LONGEST_WAIT_S, NOTHING, Completer
from slipstream.lsp.config import LanguageServerConfig
from slipstream.lsp.gap import Gap
from slipstream.lsp.gateway import MODEL_NOT_FOUND, UNREADABLE, Gateway, GatewayRefused
from tests.slipstream.lsp.scripted_gateway import ScriptedGateway, scripted_gateway

GAP = Gap("def f():\n    ", "\nf()\n", block=True)


def models(*entries: tuple[str, str]) -> str:
    return msgspec.json.encode({"data": [{"id": name, "tier": tier} for name, tier in entries]}).decode()


def completion(text: str, id_: str = "cmpl-1") -> str:
    return msgspec.json.encode({"id": id_, "choices": [{"text": text, "index": 0}]}).decode()


def refusal(code: str, message: str) -> str:
    return msgspec.json.encode({"error": {"message": message, "type": "t", "code": code}}).decode()


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedGateway]:
    async with scripted_gateway() as running:
        yield running


@contextlib.asynccontextmanager
async def client(scripted: ScriptedGateway) -> AsyncIterator[Gateway]:
    gateway = Gateway(scripted.url, "sk-1", 30.0)
    yield gateway
    await gateway.close()


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


async def ask(completer: Completer, gap: Gap = GAP) -> str:
    return (await completer.complete(gap, invoked=True)).text


async def test_the_first_autocomplete_model_is_found_once(scripted: ScriptedGateway) -> None:
    scripted.will_answer(models(("talk", "chat"), ("code", "autocomplete"), ("more", "autocomplete")))
    scripted.will_answer(completion("return 1\n  "))
    scripted.will_answer(completion("2"))
    async with client(scripted) as gateway:
        completer = Completer(LanguageServerConfig(), gateway)
        assert await ask(completer) == "return 1"
        assert await ask(completer, Gap("x = ", "", block=False)) == "2"
    found, first, second = scripted.asked
    assert found[:3] == ("GET", "/v1/models", "Bearer sk-1")
    assert first.body == {
        "model": "code", "prompt": GAP.prefix, "suffix": GAP.suffix, "max_tokens": 128, "temperature": 0,
        "stop": ["\n\n"], "stream": False,
    }  # fmt: skip
    assert (second.body["stop"], "suffix" in second.body) == (["\n"], False)


@pytest.mark.parametrize(("least", "suffix", "asked"), [(0.0, "\n", None), (0.4, "\n", 0.4), (0.4, "", None)])
async def test_only_gaps_are_judged_and_only_if_that_is_wanted(
    scripted: ScriptedGateway, least: float, suffix: str, asked: float | None
) -> None:
    scripted.will_answer(completion(""))
    async with client(scripted) as gateway:
        completer = Completer(LanguageServerConfig(model="m", min_confidence=least), gateway)
        await ask(completer, Gap("x = ", suffix, block=False))
    assert scripted.asked[0].body.get("min_confidence") == asked


async def test_no_autocomplete_model_is_said(scripted: ScriptedGateway) -> None:
    scripted.will_answer(models(("talk", "chat")))
    async with client(scripted) as gateway:
        with pytest.raises(GatewayRefused, match=r"serves this key no autocomplete model; set `model`"):
            await ask(Completer(LanguageServerConfig(), gateway))


async def test_a_model_that_is_gone_is_looked_for_again(scripted: ScriptedGateway) -> None:
    scripted.will_answer(models(("old", "autocomplete")))
    scripted.will_answer(refusal(MODEL_NOT_FOUND, "no 'old'"), 404)
    scripted.will_answer(models(("new", "autocomplete")))
    scripted.will_answer(completion("1"))
    async with client(scripted) as gateway:
        completer = Completer(LanguageServerConfig(), gateway)
        with pytest.raises(GatewayRefused, match="no 'old'"):
            await ask(completer)
        assert await ask(completer) == "1"
    assert scripted.asked[-1].body["model"] == "new"


async def test_a_refusal_that_says_when_is_tried_again_then(scripted: ScriptedGateway) -> None:
    scripted.will_answer(refusal("rate_limit_exceeded", "slower"), 429, retry_after="0")
    scripted.will_answer(completion("1"))
    async with client(scripted) as gateway:
        assert await ask(Completer(LanguageServerConfig(model="m"), gateway)) == "1"


async def test_a_second_refusal_is_one(scripted: ScriptedGateway) -> None:
    for _ in range(2):
        scripted.will_answer(refusal("overloaded", "busy"), 503, retry_after="0")
    async with client(scripted) as gateway:
        with pytest.raises(GatewayRefused, match="busy"):
            await ask(Completer(LanguageServerConfig(model="m"), gateway))


async def test_a_long_wait_is_kept_to_in_silence(scripted: ScriptedGateway) -> None:
    clock = Clock()
    scripted.will_answer(refusal("rate_limit_exceeded", "in a minute"), 429, retry_after="60")
    async with client(scripted) as gateway:
        completer = Completer(LanguageServerConfig(model="m"), gateway, clock)
        with pytest.raises(GatewayRefused, match="in a minute"):
            await ask(completer)
        clock.now_s += 60 - LONGEST_WAIT_S - 1
        assert await completer.complete(GAP, invoked=True) == NOTHING
        clock.now_s += LONGEST_WAIT_S + 1
        scripted.will_answer(completion("1"))
        assert await ask(completer) == "1"


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, "<html>", "GET {url}/v1/models was not answered as an API does"),
        (502, "<html>", "GET {url}/v1/models was answered with status 502"),
        (307, "", "GET {url}/v1/models was answered with status 307"),
    ],
)
async def test_what_is_no_api_is_said(scripted: ScriptedGateway, status: int, body: str, said: str) -> None:
    scripted.will_answer(body, status, location="/elsewhere")
    async with client(scripted) as gateway:
        with pytest.raises(GatewayRefused) as caught:
            await gateway.autocomplete_model()
    assert caught.value.sentence == said.format(url=scripted.url)
    assert caught.value.code in (UNREADABLE, str(status))
    assert len(scripted.asked) == 1


async def test_an_event_is_told_by_the_completions_id(scripted: ScriptedGateway) -> None:
    event: dict[str, Any] = {"type": "select", "choice_index": 0, "elapsed_ms": 12}
    scripted.will_answer("", 204)
    scripted.will_answer(refusal("not_found", "no such route"), 404)
    scripted.will_answer(refusal("invalid_value", "bad event"), 400)
    async with client(scripted) as gateway:
        await gateway.report("cmpl-1/?", event)
        await gateway.report("cmpl-2", event)
        with pytest.raises(GatewayRefused, match="bad event"):
            await gateway.report("cmpl-3", event)
    assert scripted.asked[0] == ("POST", "/v1/completions/cmpl-1/?/events", "Bearer sk-1", event)


async def test_a_kept_connection_that_is_closed_meanwhile_is_replaced() -> None:
    body = completion("1").encode()
    connections = 0

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"{}")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        await reader.readuntil(b"{}")
        writer.close()

    async with await asyncio.start_server(answer_once, "127.0.0.1", 0) as server:
        gateway = Gateway(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "", 30.0)
        assert [(await gateway.complete({})).text for _ in range(3)] == ["1"] * 3
        await gateway.close()
    assert connections == 3
