"""A newer keystroke ends the older request wherever it is: its client reads a complete answer, its books are exact."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from openai.types import Completion

from contracts.adapter import Adapter
from contracts.dated_request_id import mint
from contracts.errors import InternalError
from contracts.fill_in_the_middle import FillInTheMiddle
from contracts.usage import Finish, Outcome
from engines.tokenizer.tokenizer import Tokenizer
from gateway.auth.key_record import KeyRecord
from gateway.limits.cost import Cost
from gateway.limits.levels import Level, Levels, Limits, Rule
from gateway.wire.config import RequestConfig
from gateway.wire.format import WireFormat
from gateway.wire.llama_cpp.format import InfillFormat, LlamaCompletionFormat
from gateway.wire.mistral.format import FimFormat
from gateway.wire.openai.format import CompletionFormat
from gateway.wire.tabby.format import TabbyFormat
from tests.gateway.limits.store import MeasuredLimiter
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import EDITOR, GUARD_S, KEY, Harness, harness

CONFIG = RequestConfig()
CODE = Tokenizer.load(Path(__file__).parents[3] / "models" / "slipstream-code")
BEFORE, TYPED, BEHIND = "def add(a, b):\n    ret", "ry", "\n\nprint(add(1, 2))\n"


class Shape:
    """One way to ask, and to read the text of an answer as its clients do."""

    def __init__(self, name: str, wire_format: WireFormat[Any], *, stream: bool = False) -> None:
        self.name = f"{name} streamed" if stream else name
        self.wire_format = wire_format
        self.stream = stream

    agent = EDITOR
    warm_up = False

    @property
    def tokenizer(self) -> Tokenizer | None:
        """A prompt that the client laid out is a gap only for a model that is known to fill gaps."""
        return CODE if self.wire_format.name == "llama_completion" else None

    def body(self, prefix: str, suffix: str = BEHIND) -> bytes:
        asked: dict[str, Any] = {"stream": True} if self.stream else {}
        match self.wire_format.name:
            case "infill":
                head, _, line = prefix.rpartition("\n")
                asked |= {"input_prefix": f"{head}\n", "prompt": line, "input_suffix": suffix, "n_predict": 50}
            case "fim":
                asked |= {"model": "m", "prompt": prefix, "suffix": suffix, "max_tokens": 50}
            case "tabby":
                asked |= {"language": "python", "segments": {"prefix": prefix, "suffix": suffix}}
            case "llama_completion":
                asked |= {"prompt": _rendered(prefix, suffix), "n_predict": 50}
            case "completion":
                asked |= {"model": "m", "prompt": prefix, "suffix": suffix, "max_tokens": 50, "user": "u"}
        return msgspec.json.encode(asked)

    def text(self, client: Client) -> str:
        """Of a complete answer whose reason is that it had ended."""
        answer = client.answer
        assert (answer.status, answer.complete) == (200, True)
        match self.wire_format.name, self.stream:
            case "infill" | "llama_completion", False:
                assert (answer.json["stop"], answer.json["stop_type"]) == (True, "eos")
                return str(answer.json["content"])
            case "infill" | "llama_completion", True:
                assert (answer.events[-1]["stop"], answer.events[-1]["stop_type"]) == (True, "eos")
                return "".join(event["content"] for event in answer.events)
            case "fim", False:
                assert answer.json["choices"][0]["finish_reason"] == "stop"
                return str(answer.json["choices"][0]["message"]["content"])
            case "fim", True:
                *events, done = answer.events
                assert (events[-1]["choices"][0]["finish_reason"], done) == ("stop", "[DONE]")
                return "".join(event["choices"][0]["delta"]["content"] for event in events)
            case _, False:
                completion = Completion.model_validate(answer.json)
                assert completion.choices[0].finish_reason == "stop"
                return completion.choices[0].text
            case _:
                *events, done = answer.events
                last = Completion.model_validate(events[-1])  # no other has a reason, which its model wants
                assert (last.choices[0].finish_reason, done) == ("stop", "[DONE]")
                return "".join(event["choices"][0]["text"] for event in events)


def _rendered(prefix: str, suffix: str) -> str:
    return f"<|fim_prefix|>{prefix}<|fim_suffix|>{suffix}<|fim_middle|>"


INFILL, FIM, COMPLETION = InfillFormat(CONFIG), FimFormat(CONFIG), CompletionFormat(CONFIG)
SHAPES = [
    Shape("infill", INFILL),
    Shape("infill", INFILL, stream=True),
    Shape("rendered", LlamaCompletionFormat(CONFIG)),
    Shape("rendered", LlamaCompletionFormat(CONFIG), stream=True),
    Shape("fim", FIM),
    Shape("fim", FIM, stream=True),
    Shape("tabby", TabbyFormat(CONFIG)),
    Shape("completion", COMPLETION),
    Shape("completion", COMPLETION, stream=True),
]
shapes = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)


async def asked(platform: Harness, shape: Shape, prefix: str, client: Client, suffix: str = BEHIND) -> Client:
    await platform.serve(client, shape.body(prefix, suffix), shape.wire_format, shape.agent)
    return client


def stages(platform: Harness) -> dict[str, float]:
    every = {
        name: platform.sample("slipstream_superseded_total", stage=name) for name in ("queue", "prefill", "decode")
    }
    return {name: value for name, value in every.items() if value}


@shapes
async def test_while_text_comes_it_ends_with_what_has_come_and_pays_for_it(shape: Shape) -> None:
    async with harness(engines=1, driver="embedded", tokenizer=shape.tokenizer) as platform:
        platform.script(tokens=50, prompt_tokens=7, hang_after_tokens=6, texts=["or", "d ", "a", " + ", "b", "\n"])
        older = Client()
        waiting = asyncio.create_task(asked(platform, shape, BEFORE, older))
        await platform.engine_has(tokens=6)
        if shape.stream:
            await older.reads(b"b")
        else:
            await _first_text(platform)
        platform.script(tokens=2, prompt_tokens=7)
        newer = await asked(platform, shape, BEFORE + TYPED, Client())
        await waiting
        assert shape.text(older) == "ord a + b\n"
        assert shape.text(newer)
        first, second = platform.journal.records
        assert (first.finish, first.outcome, first.billed) == (Finish.COMPLETE, Outcome.EXACT, True)
        assert (first.usage.prompt_tokens, first.usage.completion_tokens) == (7, 6)
        assert second.finish is Finish.COMPLETE
        (record, _) = platform.engines[0].records.values()
        assert record.aborted
        assert stages(platform) == {"decode": 1.0}
        assert platform.sample("slipstream_abort_seconds_count", cause="superseded") == 1.0
        if not shape.stream:
            assert older.answer.headers["x-slipstream-superseded-by"] == newer.answer.headers["x-request-id"]
        assert platform.traces.seen == [(200, "superseded"), (200, None)]
        platform.require_balanced()


async def _first_text(platform: Harness) -> None:
    """Return once the gateway has read the engine's text: its first event is reported to the router."""
    async with asyncio.timeout(GUARD_S):
        while not platform.router.first_tokens:  # noqa: ASYNC110
            await asyncio.sleep(0)


@shapes
async def test_while_the_prompt_is_computed_the_engine_is_stopped_and_the_answer_is_empty(shape: Shape) -> None:
    async with harness(engines=1, driver="embedded", tokenizer=shape.tokenizer) as platform:
        platform.script(hang=True, prompt_tokens=7)
        older = Client()
        waiting = asyncio.create_task(asked(platform, shape, BEFORE, older))
        await platform.engine_has(requests=1)
        platform.script(hang=False, tokens=2, prompt_tokens=7)
        newer = await asked(platform, shape, BEFORE + TYPED, Client())
        await waiting
        assert shape.text(older) == ""
        assert older.answer.headers["x-slipstream-superseded-by"] == newer.answer.headers["x-request-id"]
        first = platform.journal.records[0]
        assert (first.finish, first.outcome, first.usage.completion_tokens) == (Finish.COMPLETE, Outcome.EXACT, 0)
        assert stages(platform) == {"prefill": 1.0}
        platform.require_balanced()


@pytest.mark.parametrize("shape", [SHAPES[1], *SHAPES[4:7]], ids=lambda shape: shape.name)
async def test_what_has_no_engine_yet_gets_an_empty_answer_and_everything_back(shape: Shape) -> None:
    async with harness(engines=1, driver="embedded", tokenizer=shape.tokenizer) as platform:
        older, newer = Client(), Client()
        started = asyncio.Event()
        held = platform.router.acquire

        async def acquire(ask: Any) -> Any:
            if started.is_set():
                return await held(ask)
            started.set()
            await asyncio.Event().wait()
            raise AssertionError

        platform.router.acquire = acquire  # type: ignore[method-assign]
        waiting = asyncio.create_task(asked(platform, shape, BEFORE, older))
        await started.wait()
        await asked(platform, shape, BEFORE + TYPED, newer)
        await waiting
        assert shape.text(older) == ""
        assert older.answer.headers["x-slipstream-superseded-by"] == newer.answer.headers["x-request-id"]
        first = next(one for one in platform.journal.records if one.finish is Finish.NOT_PLACED)
        assert (first.billed, first.usage.total_tokens, first.status) == (False, 0, 200)
        assert platform.limiter.used[first.opened.request_id] == (Cost(), True)
        assert stages(platform) == {"queue": 1.0}
        assert platform.sample("slipstream_abort_seconds_count", cause="superseded") is None
        platform.require_balanced()


async def test_an_engine_that_stops_with_its_connection_is_paid_what_was_sent_and_its_prompt() -> None:
    async with harness(engines=1, driver="openai") as platform:
        platform.script(hang=True)
        older = Client()
        shape = SHAPES[4]
        waiting = asyncio.create_task(asked(platform, shape, BEFORE, older))
        await platform.engine_has(requests=1)
        platform.script(hang=False, tokens=2)
        await asked(platform, shape, BEFORE + TYPED, Client())
        await waiting
        assert shape.text(older) == ""
        first = platform.journal.records[0]
        assert (first.finish, first.outcome) == (Finish.COMPLETE, Outcome.LOWER_BOUND)
        assert first.usage.prompt_tokens == first.opened.prompt_tokens_estimate
        await platform.engines_idle()
        platform.require_balanced()


class Script(Shape):
    """Not by an editor, and for no user."""

    agent = b"python-requests/2.32"

    def body(self, prefix: str, suffix: str = BEHIND) -> bytes:
        return msgspec.json.encode({"model": "m", "prompt": prefix, "suffix": suffix, "max_tokens": 50})


class Rendered(Script):
    """As evaluations lay prompts out."""

    def body(self, prefix: str, suffix: str = BEHIND) -> bytes:
        return msgspec.json.encode({"model": "m", "prompt": _rendered(prefix, suffix), "max_tokens": 50})


class Batch(Shape):
    """By Mistral's SDK."""

    agent = Script.agent


class Sampling(Shape):
    """Several answers to one gap."""

    def body(self, prefix: str, suffix: str = BEHIND) -> bytes:
        return msgspec.json.encode({"model": "m", "prompt": prefix, "suffix": suffix, "user": "u", "n": 2})


class WarmUp(Shape):
    """Nothing is answered anyway."""

    warm_up = True

    def body(self, prefix: str, suffix: str = BEHIND) -> bytes:
        return msgspec.json.encode({"input_prefix": prefix, "input_suffix": suffix, "n_predict": 0})


@pytest.mark.parametrize(
    ("shape", "prefix", "suffix", "supersede"),
    [
        (SHAPES[4], BEFORE, BEHIND, True),
        (SHAPES[4], "def other():\n    ret", BEHIND, True),
        (SHAPES[4], BEFORE + TYPED, BEHIND + "more", True),
        (SHAPES[4], BEFORE + TYPED, BEHIND, False),
        *(
            (shape, BEFORE + TYPED, BEHIND, True)
            for shape in (
                Script("s", COMPLETION),
                Rendered("r", COMPLETION),
                Batch("b", FIM),
                Sampling("n", COMPLETION),
                WarmUp("w", INFILL),
            )
        ),
    ],
    ids=[
        *("the same once more", "another file", "another gap", "a model without supersession"),
        *("script", "rendered", "batch", "sampling", "warm-up"),
    ],
)
async def test_what_is_not_typed_on_runs_to_its_end(shape: Shape, prefix: str, suffix: str, supersede: bool) -> None:
    """The engine has both at once and writes each to its end; neither is answered from the other's text here."""
    async with harness(engines=1, driver="embedded") as platform:
        platform.script(hang=True)
        requests, clients, running = [], [Client(), Client()], []
        for client, where in zip(clients, ((BEFORE, BEHIND), (prefix, suffix)), strict=True):
            one = await platform.request(shape.wire_format, shape.body(*where), shape.agent)
            model = msgspec.structs.replace(one.target.model, fim=FillInTheMiddle(supersede=supersede, reuse=False))
            one.target = msgspec.structs.replace(one.target, model=model)
            requests.append(one)
            running.append(asyncio.create_task(platform.run(one, client)))
            await platform.engine_has(requests=len(requests))
        (engine,) = platform.engines
        platform.go_on()
        async with asyncio.timeout(GUARD_S):
            await asyncio.gather(*running)
        for one, client in zip(requests, clients, strict=True):
            assert one.superseded_by is None
            assert (client.answer.status, client.answer.complete) == (200, True)
            assert shape.warm_up or b" t0 t1 t2 t3" in client.sent
        assert not stages(platform)
        assert not any(record.aborted for record in engine.records.values())
        assert [(one.finish, one.outcome) for one in platform.journal.records] == [(Finish.COMPLETE, Outcome.EXACT)] * 2
        platform.require_balanced()


async def test_an_answer_whose_books_are_being_closed_is_given_whole() -> None:
    async with harness(engines=1, driver="embedded") as platform:
        shape, older = SHAPES[4], Client()

        def type_on() -> None:
            (siblings,) = platform.supersession._in_flight.values()
            for flight in siblings.values():
                flight.supersede("req_newer")

        platform.faults.calls["closed"] = type_on
        await asked(platform, shape, BEFORE, older)
        assert older.answer.json["choices"][0]["message"]["content"] == " t0 t1 t2 t3"
        assert platform.traces.seen == [(200, None)]
        platform.require_balanced()


async def test_a_client_that_leaves_while_it_is_superseded_is_gone() -> None:
    async with harness(engines=1, driver="embedded", abort_drain_s=0.5) as platform:
        platform.script(tokens=50, hang_after_tokens=3, own_ids=True)  # no abort reaches what it generates
        shape, older = SHAPES[5], Client()
        waiting = asyncio.create_task(asked(platform, shape, BEFORE, older))
        await older.reads(b"t2")
        platform.script(tokens=2)
        newer = asyncio.create_task(asked(platform, shape, BEFORE + TYPED, Client()))
        async with asyncio.timeout(GUARD_S):
            while not stages(platform):  # noqa: ASYNC110  the turns until it is told
                await asyncio.sleep(0)
        assert not waiting.done(), "its engine is being stopped"
        older.leave()
        await asyncio.gather(waiting, newer)
        assert shape.text(await newer) == " t0 t1"
        assert not older.answer.complete
        assert sorted(platform.traces.seen, key=str) == [(200, "client_gone"), (200, None)]
        assert {record.finish for record in platform.journal.records} == {Finish.CLIENT_GONE, Finish.COMPLETE}
        await platform.engines_idle()
        platform.require_balanced()


async def test_books_that_cannot_be_closed_are_an_error_also_for_who_typed_on() -> None:
    async with harness(engines=1, driver="embedded") as platform:
        platform.script(hang=True)
        shape, older = SHAPES[4], Client()
        waiting = asyncio.create_task(asked(platform, shape, BEFORE, older))
        await platform.engine_has(requests=1)
        platform.script(hang=False, tokens=2)
        platform.faults.raises["closed"] = InternalError("disk")
        await asyncio.gather(waiting, asked(platform, shape, BEFORE + TYPED, Client()))
        statuses = sorted(status for status, _ in platform.traces.seen)
        assert statuses == [200, 500]


@pytest.mark.parametrize("typed", [TYPED, "\n    other"], ids=["typed on", "another gap"])
async def test_one_place_is_enough_for_who_types_on(valkey_url: str, typed: str) -> None:
    """What it was typed on still holds the place when it comes."""
    async with typing_against(valkey_url, Limits(max_concurrency=1)) as typist:
        older, newer = typist.asks(BEFORE), Client()
        await typist.client(older).reads(b"t2")
        typist.platform.script(tokens=2)
        await typist.limited(BEFORE + typed, BEHIND if typed == TYPED else "", newer)
        if typed == TYPED:
            await older
            assert (typist.shape.text(typist.client(older)), typist.shape.text(newer)) == (" t0 t1 t2", " t0 t1")
        else:
            assert newer.answer.status == 429
            await typist.leaves(older)


ASKED_AT_MOST = 100
"""Tokens: a little more than one of these requests may use, and less than two."""


@pytest.mark.parametrize(
    "limits",
    [
        Limits(requests_per_minute=1),
        Limits(tokens_per_day=ASKED_AT_MOST),
        Limits(max_concurrency=1, tokens_per_day=ASKED_AT_MOST),
    ],
    ids=["requests", "tokens a day", "place and tokens a day"],
)
async def test_a_keystroke_that_a_limit_refuses_leaves_the_one_before_it(valkey_url: str, limits: Limits) -> None:
    async with typing_against(valkey_url, limits) as typist:
        older, newer = typist.asks(BEFORE), Client()
        await typist.client(older).reads(b"t2")
        await typist.limited(BEFORE + TYPED, BEHIND, newer)
        assert newer.answer.status == 429
        assert not stages(typist.platform)
        assert not typist.platform.engines[0].records.popitem()[1].aborted
        await typist.leaves(older)
        assert [code for _, code in typist.platform.traces.seen] == ["rate_limit_exceeded", "client_gone"]


class Typist:
    """One key that types at a platform whose limits are real."""

    shape = SHAPES[5]

    def __init__(self, platform: Harness, limits: Limits) -> None:
        self.platform = platform
        rule = Rule(Level.KEY, mint(), None, limits)
        self._key = KeyRecord(KEY.caller, Levels.of(KEY.caller.organization_id, [rule]))
        self._clients: dict[asyncio.Task[None], Client] = {}

    def asks(self, prefix: str) -> asyncio.Task[None]:
        client = Client()
        task = asyncio.create_task(self.limited(prefix, BEHIND, client))
        self._clients[task] = client
        return task

    def client(self, asking: asyncio.Task[None]) -> Client:
        return self._clients[asking]

    async def leaves(self, asking: asyncio.Task[None]) -> None:
        self._clients[asking].leave()
        await asking

    async def limited(self, prefix: str, suffix: str, client: Client) -> None:
        shape = self.shape
        request = await self.platform.request(shape.wire_format, shape.body(prefix, suffix), shape.agent)
        request.key = self._key
        await self.platform.run(request, client)


@contextlib.asynccontextmanager
async def typing_against(valkey_url: str, limits: Limits) -> AsyncIterator[Typist]:
    """The engine has written three tokens of the first request and waits; at the end nothing is reserved."""
    limiter = MeasuredLimiter(valkey_url, key_prefix=mint()[:32])
    async with harness(engines=1, driver="embedded") as platform:
        await limiter.start()
        platform.pipeline._limits._limiter = limiter
        platform.script(tokens=50, hang_after_tokens=3)
        yield Typist(platform, limits)
        await limiter.drain()
        assert limiter.open_reservations == 0
        await limiter.stop()


async def test_requests_with_different_adapters_are_not_typed_on_one_another() -> None:
    async with harness(engines=1, driver="embedded") as platform:
        told = []
        for name in ("one", "other"):
            request = await platform.request(FIM, Shape("fim", FIM).body("x = 1\ny"))
            adapter = Adapter("a", name, "m", "/adapters/a")
            request.generation = msgspec.structs.replace(request.generation, adapter=adapter)
            assert request.keystroke is not None
            told.append(request.keystroke.model)
    assert told == ["m:one", "m:other"]
