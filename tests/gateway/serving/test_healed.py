"""A gap's client gets what follows the typed text, whatever its format, from an engine that returns the opening too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from contracts.fill_in_the_middle import FillInTheMiddle
from contracts.usage import Finish, Usage
from engines.http.engine_stream import EngineStream
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.config import RequestConfig
from gateway.wire.llama_cpp.format import InfillFormat
from gateway.wire.mistral.format import FimFormat
from tests.gateway.serving import harness as harnesses
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import COMPLETION, Harness, harness

CODE = Tokenizer.load(Path(__file__).parents[3] / "models" / "slipstream-code")
FIM, INFILL = FimFormat(RequestConfig()), InfillFormat(RequestConfig())
TEXTS = ("N", "ame", "s(1)", "\n")
"""The engine's tokens for the opening `Nam`, in the second of which it ends."""
PREFIX, REST = "return self.getUserNam", "es(1)\n"


@pytest.fixture(autouse=True)
def healing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model whose gaps are healed."""
    plain = harnesses.target

    def healed(driver: str, tokenizer: Tokenizer | None = None) -> Any:
        made = plain(driver, tokenizer)
        fim = FillInTheMiddle(min_confidence=0.0)
        return msgspec.structs.replace(made, model=msgspec.structs.replace(made.model, fim=fim))

    monkeypatch.setattr(harnesses, "target", healed)


def asked(**fields: Any) -> bytes:
    return msgspec.json.encode({"model": "m", "prompt": PREFIX, "suffix": "\nend\n", "max_tokens": 32, **fields})


def sent(platform: Harness) -> dict[str, Any]:
    """The engine's last request."""
    [record] = platform.engines[0].records.values()
    return dict(msgspec.json.decode(record.body))


@pytest.mark.parametrize("split", ["event", "byte", "joined"])
@pytest.mark.parametrize("stream", [True, False])
async def test_the_opening_is_cut_off_once_and_counted(split: str, stream: bool) -> None:
    async with harness(engines=1, driver="sglang", tokenizer=CODE) as platform:
        platform.script(texts=TEXTS, tokens=len(TEXTS), split=split)
        client = Client()
        request = await platform.serve(client, asked(stream=stream), FIM)
        answer = client.answer
        assert answer.complete
        if stream:
            text = "".join(event["choices"][0]["delta"].get("content") or "" for event in answer.events[:-1])
        else:
            text = answer.json["choices"][0]["message"]["content"]
        assert text == REST
        assert request.characters == len(REST)
        assert sent(platform)["regex"] == r"Nam[\s\S]*"
        [record] = platform.journal.records
        assert record.usage.completion_tokens == len(TEXTS), "the engine's own count"
        platform.require_balanced()


async def test_each_of_several_choices_loses_its_own() -> None:
    async with harness(engines=1, driver="vllm", tokenizer=CODE) as platform:
        platform.script(texts=TEXTS, tokens=len(TEXTS))
        client = Client()
        await platform.serve(client, asked(n=2, temperature=0.5, logprobs=1), COMPLETION, agent=b"python")
        choices = client.answer.json["choices"]
        assert [choice["text"] for choice in choices] == [REST, REST]
        assert sent(platform)["structured_outputs"] == {"regex": r"Nam[\s\S]*"}


async def test_a_client_that_leaves_before_a_wrong_opening_is_read_is_billed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The events without the opening wait unread as the client leaves. Their error must not replace its leaving, or
    another engine would serve, and bill, the request again."""
    changed = EngineStream.changed
    async with harness(engines=2, driver="vllm", tokenizer=CODE) as platform:
        platform.script(texts=TEXTS, tokens=len(TEXTS))
        platform.engines[0].control(b'{"texts": ["other"], "tokens": 1}')
        client = Client()

        def leaves(stream: EngineStream) -> None:
            changed(stream)
            if stream.pieces:
                client.connection.lost()

        monkeypatch.setattr(EngineStream, "changed", leaves)
        await platform.serve(client, asked(), FIM)
        platform.require_balanced()
        assert [(record.finish, record.billed) for record in platform.journal.records] == [(Finish.CLIENT_GONE, True)]
        assert [engine.requests for engine in platform.engines] == [1, 0]


async def test_an_engine_that_ignores_it_is_reported() -> None:
    async with harness(engines=1, driver="vllm", tokenizer=CODE) as platform:
        platform.script(texts=("other",), tokens=1)
        client = Client()
        await platform.serve(client, asked(), FIM)
        assert client.answer.status == 502
        assert "does not begin with" in client.answer.body.decode()
        platform.require_balanced()


@pytest.mark.parametrize(("tokens", "billed"), [(1, False), (2, True)])
async def test_an_engine_that_breaks_off_is_billed_if_it_wrote_more_than_the_opening(tokens: int, billed: bool) -> None:
    async with harness(engines=1, driver="sglang", tokenizer=CODE) as platform:
        platform.script(texts=TEXTS, tokens=len(TEXTS), die_after_tokens=tokens)
        client = Client()
        await platform.serve(client, asked(stream=True), FIM)
        assert b"The engine failed" in client.sent
        [record] = platform.journal.records
        assert (record.usage.completion_tokens, record.billed) == (tokens, billed)
        platform.require_balanced()


async def test_a_client_that_leaves_while_the_opening_is_written_stops_the_engine() -> None:
    async with harness(engines=1, driver="sglang", tokenizer=CODE) as platform:
        platform.script(texts=TEXTS, tokens=len(TEXTS), hang_after_tokens=1)
        client = Client(leave_at_write=1)
        await platform.serve(client, asked(stream=True), COMPLETION, agent=b"python")
        [record] = platform.journal.records
        assert record.finish is Finish.CLIENT_GONE
        assert record.usage.completion_tokens == 1
        platform.require_balanced()


async def test_a_second_reader_gets_the_same_text() -> None:
    async with harness(engines=1, driver="sglang", tokenizer=CODE) as platform:
        platform.script(texts=TEXTS, tokens=len(TEXTS))
        clients = [Client(), Client()]
        for client, typed in zip(clients, ["", REST[:2]], strict=True):
            body = asked(prompt=PREFIX + typed)
            await platform.serve(client, body, FIM)
        texts = [client.answer.json["choices"][0]["message"]["content"] for client in clients]
        assert texts == [REST, REST[2:]]
        assert platform.engines[0].requests == 1
        assert [record.usage.completion_tokens for record in platform.journal.records] == [
            len(TEXTS),
            Usage().completion_tokens,
        ]
