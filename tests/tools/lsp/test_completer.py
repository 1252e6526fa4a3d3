"""What is asked of a gateway and when, against one that answers as told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from tests.tools.lsp.scripted_gateway import ScriptedGateway, scripted_gateway
from tools.lsp.completer import LONGEST_WAIT_S, NOTHING, Completer
from tools.lsp.config import LanguageServerConfig
from tools.lsp.gap import Gap
from tools.lsp.gateway import UNREADABLE, Gateway, GatewayRefused

GAP = Gap("def f():\n    ", "\nf()\n", "src/a.py", "python")


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


async def test_a_gap_is_asked_for_as_editors_do_with_all_that_is_known_of_it(scripted: ScriptedGateway) -> None:
    scripted.will_answer(completion("return 1\n  "))
    async with client(scripted) as gateway:
        config = LanguageServerConfig(model="code", min_confidence=0.4)
        assert await ask(Completer(config, gateway, "u1")) == "return 1"
    [asked] = scripted.asked
    assert asked[:3] == ("POST", "/v1/completions", "Bearer sk-1")
    assert asked.body == {
        "model": "code", "segments": {"prefix": GAP.prefix, "suffix": GAP.suffix, "filepath": "src/a.py"},
        "language": "python", "user": "u1", "max_tokens": 128, "temperature": 0, "min_confidence": 0.4,
    }  # fmt: skip


async def test_at_the_end_of_a_file_without_a_name_it_is_a_gap_too(scripted: ScriptedGateway) -> None:
    scripted.will_answer(completion("2"))
    async with client(scripted) as gateway:
        assert await ask(Completer(LanguageServerConfig(), gateway, "u1"), Gap("x = ", "")) == "2"
    [asked] = scripted.asked
    assert asked.body == {
        "segments": {"prefix": "x = ", "suffix": ""}, "user": "u1", "max_tokens": 128, "temperature": 0
    }  # fmt: skip


async def test_a_refusal_that_says_when_is_tried_again_once(scripted: ScriptedGateway) -> None:
    scripted.will_answer(refusal("rate_limit_exceeded", "slower"), 429, retry_after="0")
    scripted.will_answer(completion("1"))
    for _ in range(2):
        scripted.will_answer(refusal("overloaded", "busy"), 503, retry_after="0")
    async with client(scripted) as gateway:
        completer = Completer(LanguageServerConfig(), gateway, "u1")
        assert await ask(completer) == "1"
        with pytest.raises(GatewayRefused, match="busy"):
            await ask(completer, Gap("x = ", ""))


async def test_a_long_wait_is_kept_to_in_silence(scripted: ScriptedGateway) -> None:
    clock = Clock()
    scripted.will_answer(refusal("rate_limit_exceeded", "in a minute"), 429, retry_after="60")
    async with client(scripted) as gateway:
        completer = Completer(LanguageServerConfig(), gateway, "u1", clock)
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
        (200, "<html>", "POST {url}/v1/completions did not return the response of an API"),
        (502, "<html>", "POST {url}/v1/completions was answered with status 502"),
        (307, "", "POST {url}/v1/completions was answered with status 307"),
    ],
)
async def test_what_is_no_api_is_said(scripted: ScriptedGateway, status: int, body: str, said: str) -> None:
    scripted.will_answer(body, status, location="/elsewhere")
    async with client(scripted) as gateway:
        with pytest.raises(GatewayRefused) as caught:
            await gateway.complete({})
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
