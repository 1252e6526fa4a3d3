"""An engine's event that is not JSON ends an answer as its failure, streamed and whole, and in the ledger."""

from __future__ import annotations

import asyncio

import pytest

from contracts.usage import Finish
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import body, harness
from tests.gateway.serving.stepped_engine import stepped_engine
from tests.waiting import eventually

BROKEN = [b'"logprob":-Infinity', b'"x":NaN', b'"x":"\xf0\x9f"', b'"x":"c" oops']


def event_of(text: str, more: bytes = b"") -> bytes:
    head = b'data: {"id":"r","object":"chat.completion.chunk","created":1,"model":"m",' + more
    return head + b'"choices":[{"index":0,"delta":{"content":"%b"},"finish_reason":null}]}\n\n' % text.encode()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("broken", BROKEN)
async def test_a_broken_event_is_the_engines_failure(broken: bytes, stream: bool) -> None:
    """The client gets the earlier events of the same read."""
    client, event = Client(), event_of("c", broken + b",")
    async with stepped_engine() as (engine, place), harness(engines=0) as platform:
        platform.router.engines = (place,)
        serving = asyncio.create_task(platform.serve(client, body(stream=stream)))
        await engine.say("a")
        await eventually(lambda: platform.router.first_tokens)
        last = event_of("b") + event
        await engine.write(b"%x\r\n%b\r\n" % (len(last), last))
        await serving
        answer = client.answer
        assert answer.complete
        if stream:
            assert answer.status == 200
            assert [one["choices"][0]["delta"]["content"] for one in answer.events[:-1]] == ["a", "b"]
        else:
            assert answer.status == 502
        told = answer.events[-1] if stream else answer.json
        assert told["error"]["code"] == "engine_failed"
        [record] = platform.journal.records
        assert (record.finish, record.error_code) == (Finish.ENGINE_ERROR, "engine_failed")
        assert platform.router.ends[0].engine_fault
        platform.require_balanced()
