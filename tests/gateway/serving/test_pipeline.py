"""Every path of a request through the pipeline, and that each gives back what it took."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from contracts.errors import (
    InsufficientQuota,
    JournalUnavailable,
    LimiterUnavailable,
    NoEngine,
    Overloaded,
    RouterUnavailable,
    ServiceError,
    SlipstreamError,
)
from contracts.lease import Lease, LeaseRequest
from contracts.usage import Finish, Outcome
from engines.http.engine_stream import EngineStream
from engines.tokenizer.tokenizer import Tokenizer
from gateway.limits.cost import Cost
from gateway.limits.levels import Level
from gateway.limits.plan import NO_LIMIT, Plan, PlannedRule
from gateway.limits.rate_state import RateState
from gateway.metering.pricing.price import Price
from gateway.serving.request import InferenceRequest
from gateway.serving.stream import StreamForwarder
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import COMPLETION, GUARD_S, KEY, PRICE, Harness, body, harness
from tests.virtual_time import in_virtual_time

WHOLE, STREAM = body(), body(stream=True)
CODE = Tokenizer.load(Path(__file__).parents[3] / "models" / "slipstream-code")


async def served(platform: Harness, asked: bytes = STREAM, client: Client | None = None) -> Client:
    """One request, served to its end, with its books looked at."""
    client = client or Client()
    await platform.serve(client, asked)
    await platform.engines_idle()
    platform.require_balanced()
    assert len(platform.traces.seen) == 1
    return client


def finishes(platform: Harness) -> list[tuple[Finish, Outcome, bool]]:
    """How each attempt ended, by the journal."""
    return [(record.finish, record.outcome, record.billed) for record in platform.journal.records]


# what goes well


@pytest.mark.parametrize("asked", [STREAM, WHOLE])
@pytest.mark.parametrize(
    "script",
    [
        {},
        {"status": 400},
        {"status": 429},
        {"die_after_tokens": 0},
        {"die_after_tokens": 2},
        {"error_after_tokens": 2},
        {"abort_after_tokens": 0},
    ],
)
async def test_a_request_that_is_over_leaves_nothing_to_the_garbage_collector(
    script: dict[str, Any], asked: bytes
) -> None:
    """A collection stands the loop still for a tenth of a second once 2,000 requests have left their cycles."""
    async with harness() as platform:
        platform.script(**script)
        with _nothing_left():
            await served(platform, asked)


async def test_a_request_that_the_router_refuses_leaves_nothing_to_the_garbage_collector() -> None:
    async with harness() as platform:

        async def acquire(_: LeaseRequest) -> Lease:
            answer: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
            answer.set_exception(Overloaded("The pool is full.", retry_after_s=1))
            return await answer  # like the real client, whose frame keeps the future

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(platform.router, "acquire", acquire)
            with _nothing_left():
                await served(platform, STREAM)


async def test_a_client_that_leaves_a_failing_engine_leaves_nothing_to_the_garbage_collector() -> None:
    """Fault: the stream kept the error with which it ended, whose frames led to the request."""
    async with harness(engines=1) as platform:
        platform.script(hang=True)
        with _nothing_left(), pytest.MonkeyPatch.context() as patch:
            client = Client()
            serving = asyncio.create_task(served(platform, STREAM, client))
            await platform.engine_has(requests=1)
            (engine,) = platform.engines
            (generating,) = engine.live.values()
            patch.setattr(generating, "abort", generating._connection.die)
            client.leave()
            await serving
            del client, serving, generating


@contextlib.contextmanager
def _nothing_left() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        before = len(_requests_in_memory())  # tests that failed keep theirs
        yield
        assert len(_requests_in_memory()) == before
    finally:
        gc.enable()


def _requests_in_memory() -> list[object]:
    return [found for found in gc.get_objects() if type(found) in (InferenceRequest, StreamForwarder)]


async def test_a_stream_is_served_and_its_books_are_closed_before_its_last_event() -> None:
    async with harness() as platform:
        client, before = Client(), []
        platform.faults.calls["settle"] = lambda: before.append(client.sent)
        await served(platform, body(stream=True, stream_options={"include_usage": True}), client)
        answer = client.answer
        assert (answer.status, answer.complete, answer.events[-1]) == (200, True, "[DONE]")
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert (
            answer.headers["server-timing"].startswith("auth;dur=") or "engine;dur=" in answer.headers["server-timing"]
        )
        text = "".join(c["delta"].get("content") or "" for e in answer.events[:-1] for c in e["choices"])
        assert text == " t0 t1 t2 t3"
        assert answer.events[-2]["usage"]["total_tokens"] == 7 + 4
        (sent,) = before
        assert b"t3" in sent or b"t2" in sent
        assert b'finish_reason":"' not in sent
        assert b"[DONE]" not in sent
        assert finishes(platform) == [(Finish.COMPLETE, Outcome.EXACT, True)]
        assert platform.limiter.used.popitem()[1] == (Cost(7, 4, 11), False)
        assert platform.traces.seen == [(200, None)]
        assert len(platform.prefixes.seen) == 1
        assert platform.sample("slipstream_tokens_total", tier="chat", kind="completion") == 4
        assert len(platform.router.first_tokens) == 1


@pytest.mark.parametrize(("before", "after", "billed"), [([], [PRICE], (0, 0)), ([PRICE], [], (1, 11))])
async def test_a_request_is_counted_and_billed_by_the_price_that_was_known_when_it_came(
    before: list[Price], after: list[Price], billed: tuple[int, int]
) -> None:
    async with harness() as platform:
        platform.prices.replace(before)
        platform.faults.calls["acquire"] = lambda: platform.prices.replace(after)
        await platform.serve(Client(), WHOLE)
        ((used, _),) = platform.limiter.used.values()
        (record,) = platform.journal.records
        assert (record.opened.known_price, used.micro) == billed


async def test_a_whole_answer_is_sent_once_its_books_are_closed() -> None:
    async with harness() as platform:
        client, before = Client(), []
        platform.faults.calls["settle"] = lambda: before.append(client.sent)
        await served(platform, WHOLE, client)
        answer = client.answer
        assert (answer.status, answer.complete, before) == (200, True, [b""])
        assert answer.json["choices"][0]["message"]["content"] == " t0 t1 t2 t3"
        assert answer.json["usage"]["completion_tokens"] == 4
        assert finishes(platform) == [(Finish.COMPLETE, Outcome.EXACT, True)]


async def test_a_completion_is_answered_as_one() -> None:
    async with harness() as platform:
        client = Client()
        await platform.serve(client, b'{"model":"m","prompt":"x"}', COMPLETION)
        platform.require_balanced()
        assert client.answer.json["object"] == "text_completion"
        assert client.answer.json["id"].startswith("cmpl-")
        assert platform.journal.records[0].opened.endpoint == "completion"


async def test_what_is_left_of_the_limits_is_told() -> None:
    rule = PlannedRule(Level.KEY, "k", None, "rate", "key", (60, *[NO_LIMIT] * 6))
    state = RateState(Plan("o", "", (rule,)), (59 * 60_000, *[0] * 6), 0)
    async with harness(state=state) as platform:
        client = await served(platform)
        assert client.answer.headers["x-ratelimit-remaining-requests"] == "59"


# refusals before an engine has it


@pytest.mark.parametrize("asked", [WHOLE, STREAM])
@pytest.mark.parametrize(
    ("step", "error", "status", "attempts"),
    [
        ("reserve", InsufficientQuota("spent"), 429, 0),
        ("reserve", LimiterUnavailable("away", retry_after_s=1), 503, 0),
        ("opened", JournalUnavailable("disk full", retry_after_s=1), 503, 0),
        ("acquire", Overloaded("shed", retry_after_s=2), 503, 1),
        ("acquire", NoEngine("none", retry_after_s=2), 503, 1),
        ("acquire", RouterUnavailable("gone", retry_after_s=1), 503, 1),
        ("placed", JournalUnavailable("disk full", retry_after_s=1), 503, 1),
    ],
)
async def test_a_refusal_takes_nothing(
    step: str, error: SlipstreamError, status: int, attempts: int, asked: bytes
) -> None:
    async with harness() as platform:
        platform.faults.raises[step] = error
        client = await served(platform, asked)
        assert (client.answer.status, client.answer.json["error"]["code"]) == (status, error.code)
        assert platform.traces.seen == [(status, error.code)]
        assert platform.prefixes.seen == []  # no engine has computed it
        assert len(platform.journal.records) == attempts
        assert all(not record.billed and record.usage.total_tokens == 0 for record in platform.journal.records)
        assert [engine.requests for engine in platform.engines] == [0, 0]
        for cost, refunded in platform.limiter.used.values():
            assert (cost, refunded) == (Cost(), True), "nothing ran: the request itself is given back"


@pytest.mark.parametrize("over_share", [True, False])
async def test_whose_doing_a_refusal_was_is_counted(over_share: bool) -> None:
    error = Overloaded("shed", retry_after_s=2)
    error.over_share = over_share
    async with harness() as platform:
        platform.faults.raises["acquire"] = error
        await served(platform)
        labels = {"tier": "chat", "endpoint": "chat", "status": "503", "code": "overloaded"}
        counted = {
            value: platform.sample("slipstream_requests_total", **labels, over_share=value)
            for value in ("true", "false")
        }
        assert counted == ({"true": 1.0, "false": None} if over_share else {"true": None, "false": 1.0})


async def test_a_model_without_engines_is_refused() -> None:
    async with harness(engines=0) as platform:
        client = await served(platform)
        assert (client.answer.status, client.answer.json["error"]["code"]) == (503, "no_engine_available")


# engines that fail


@pytest.mark.parametrize("asked", [WHOLE, STREAM])
@pytest.mark.parametrize(
    "script", [{"die_after_tokens": 0}, {"abort_after_tokens": 0}, {"status": 500}, {"status": 503}, {"status": 429}]
)
async def test_an_engine_that_fails_before_its_first_event_is_replaced(script: dict[str, Any], asked: bytes) -> None:
    async with harness() as platform:
        platform.script(**script)
        well = {"status": 200, "die_after_tokens": -1, "abort_after_tokens": -1}
        platform.faults.calls["closed"] = lambda: platform.script(**well)
        client = await served(platform, asked)
        assert (client.answer.status, client.answer.complete) == (200, True)
        assert b"abort" not in client.answer.body
        assert [ask.excluded_replicas for ask in platform.router.asks] == [(), ("engine-0",)]
        first, second = [(finish, billed) for finish, _, billed in finishes(platform)]
        assert (first, second) == ((Finish.ENGINE_ERROR, False), (Finish.COMPLETE, True))
        faults = [end.engine_fault for end in platform.router.ends]
        assert faults == [script.get("status") not in (429, 503), False], "a full engine is not a broken one"


@pytest.mark.parametrize(("asked_for", "told"), [("20", "20"), ("0", "1"), ("86400", "60"), ("soon", "1"), ("", "1")])
async def test_a_full_engine_says_when_to_come_back_and_the_log_why_once_a_minute(
    asked_for: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with harness(engines=1) as platform:
        platform.script(status=429, message="Rate limit reached for requests.", retry_after=asked_for)
        for _ in range(3):
            client = Client()
            await platform.serve(client, STREAM)
            assert (client.answer.status, client.answer.json["error"]["code"]) == (503, "overloaded")
            assert client.answer.headers["retry-after"] == told
            assert "Rate limit" not in client.answer.json["error"]["message"], "it is not the client's limit"
        (line,) = [record.getMessage() for record in caplog.records if "engine-0" in record.getMessage()]
        assert line.startswith("pool pool: engine-0 refused request req_")
        assert "(status 429: Rate limit reached for requests.); 0 more" in line


@pytest.mark.parametrize("engines", [2, 4])
async def test_a_request_that_broke_two_engines_is_taken_to_no_third(engines: int) -> None:
    async with harness(engines=engines, max_attempts=4) as platform:
        platform.script(die_after_tokens=0)
        client = await served(platform)
        assert (client.answer.status, client.answer.json["error"]["code"]) == (502, "engine_failed")
        assert [ask.excluded_replicas for ask in platform.router.asks] == [(), ("engine-0",)]
        assert [record.opened.attempt for record in platform.journal.records] == [0, 1]
        assert finishes(platform)[0][0] is Finish.ENGINE_ERROR


async def test_engines_that_were_full_are_not_broken_by_a_request() -> None:
    async with harness(engines=4, max_attempts=4) as platform:
        platform.script(status=503)
        client = await served(platform)
        assert (client.answer.status, client.answer.json["error"]["code"]) == (503, "overloaded")
        assert len(platform.router.asks) == 4


@pytest.mark.parametrize("script", [{"die_after_tokens": 2}, {"error_after_tokens": 2}])
async def test_an_engine_that_fails_in_its_stream_ends_it_with_one_error_event(script: dict[str, Any]) -> None:
    async with harness() as platform:
        platform.script(**script)
        client = await served(platform)
        answer = client.answer
        assert (answer.status, answer.complete) == (200, True)
        assert [event["error"]["code"] for event in answer.events if "error" in event] == ["engine_failed"]
        assert "error" in answer.events[-1], "no [DONE] follows"
        assert "scripted failure" not in str(answer.events[-1]), "the engine's own words may hold anything"
        assert finishes(platform) == [(Finish.ENGINE_ERROR, Outcome.LOWER_BOUND, True)]
        assert platform.journal.records[0].usage.completion_tokens == 2
        assert len(platform.router.asks) == 1, "what has begun is not begun again"
        assert platform.traces.seen == [(200, "engine_failed")]


async def test_an_engine_that_aborts_in_its_stream_ends_it_with_an_error() -> None:
    async with harness() as platform:
        platform.script(hang_after_tokens=2)
        client = Client()
        serving = asyncio.create_task(served(platform, STREAM, client))
        await client.reads(b"t1")
        platform.abort()
        await serving
        assert client.answer.complete
        assert client.answer.events[-1]["error"]["code"] == "engine_failed"
        assert b"abort" not in client.answer.body
        assert finishes(platform) == [(Finish.ENGINE_ERROR, Outcome.EXACT, True)], "as far as it was sent on"
        assert [end.engine_fault for end in platform.router.ends] == [True]


async def test_a_whole_answer_that_every_engine_aborts_is_an_error_and_not_billed() -> None:
    async with harness() as platform:
        platform.script(abort_after_tokens=2)
        client = await served(platform, WHOLE)
        assert (client.answer.status, client.answer.json["error"]["code"]) == (502, "engine_failed")
        assert {(finish, billed) for finish, _, billed in finishes(platform)} == {(Finish.ENGINE_ERROR, False)}


async def test_a_whole_answer_that_breaks_off_reached_nobody_and_is_not_billed() -> None:
    async with harness() as platform:
        platform.script(die_after_tokens=2)
        client = await served(platform, WHOLE)
        assert (client.answer.status, client.answer.json["error"]["code"]) == (502, "engine_failed")
        assert finishes(platform) == [(Finish.ENGINE_ERROR, Outcome.LOWER_BOUND, False)]
        cost, refunded = platform.limiter.used.popitem()[1]
        assert (cost.micro, cost.output_tokens, refunded) == (0, 2, False), "limits count what an engine worked off"


async def test_a_request_that_an_engine_refuses_is_not_tried_again() -> None:
    async with harness() as platform:
        platform.script(status=400, message="no such tool")
        client = await served(platform)
        assert (client.answer.status, client.answer.json["error"]["code"]) == (400, "engine_refused")
        assert len(platform.router.asks) == 1
        assert not platform.router.ends[0].engine_fault


@in_virtual_time
async def test_an_engine_that_never_answers_is_given_up() -> None:
    async with harness(first_event_timeout_s=0.05) as platform:
        platform.script(hang=True)
        client = await served(platform)
        assert (client.answer.status, client.answer.json["error"]["code"]) == (504, "engine_timeout")
        assert [end.engine_fault for end in platform.router.ends] == [True, True]
        assert [record.outcome for record in platform.journal.records] == [Outcome.LOWER_BOUND] * 2


async def test_an_engine_that_falls_silent_is_given_up() -> None:
    async with harness() as platform:
        platform.script(hang_after_tokens=2)
        client = Client()
        serving = asyncio.create_task(served(platform, STREAM, client))
        await client.reads(b"t1")
        platform.idle.sweep(time.monotonic() + platform.config.event_timeout_s + 1)
        await serving
        assert client.answer.events[-1]["error"]["code"] == "engine_timeout"
        assert finishes(platform) == [(Finish.ENGINE_ERROR, Outcome.LOWER_BOUND, True)]


@pytest.mark.parametrize(("usage", "outcome"), [(True, Outcome.EXACT), (False, Outcome.LOWER_BOUND)])
async def test_an_engine_that_tells_no_usage_leaves_a_lower_bound(usage: bool, outcome: Outcome) -> None:
    async with harness() as platform:
        platform.script(usage=usage)
        client = await served(platform, WHOLE)
        assert finishes(platform) == [(Finish.COMPLETE, outcome, True)]
        assert client.answer.json["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize(("echo", "tokens"), [(False, 8), (True, 2)])
async def test_an_echoed_prompt_is_not_counted_as_output(echo: bool, tokens: int) -> None:
    """The gateway cannot tell an echo from output, so it counts events and not the text: a lower bound."""
    prompt = "def add(a, b):"
    async with harness(engines=1, tokenizer=CODE) as platform:
        platform.script(texts=(prompt, " return"), tokens=2, usage=False)
        asked = {"model": "m", "prompt": prompt, "max_tokens": 32, "echo": echo}
        await platform.serve(Client(), msgspec.json.encode(asked), COMPLETION)
        (record,) = platform.journal.records
        assert (record.outcome, record.usage.completion_tokens) == (Outcome.LOWER_BOUND, tokens)


async def test_sessions_that_two_organizations_name_alike_are_two_at_the_router() -> None:
    async with harness(engines=1) as platform:
        for organization in ("one", "two"):
            caller = replace(KEY.caller, organization_id=organization)
            await platform.serve(Client(), body(user="alike"), key=replace(KEY, caller=caller))
        assert [ask.session_id for ask in platform.router.asks] == ["one:alike", "two:alike"]


# clients that leave


async def test_a_client_that_left_before_takes_nothing() -> None:
    async with harness() as platform:
        client = Client()
        client.connection.lost()
        await served(platform, STREAM, client)
        assert (platform.traces.seen, platform.journal.records) == ([(499, "client_gone")], [])
        assert platform.limiter.reserved == {}


@pytest.mark.parametrize("asked", [WHOLE, STREAM])
@pytest.mark.parametrize("step", ["reserve", "opened", "acquire", "placed"])
async def test_a_client_that_leaves_before_its_engine_begins_pays_nothing(step: str, asked: bytes) -> None:
    async with harness() as platform:
        client = Client()
        platform.faults.calls[step] = client.leave
        await served(platform, asked, client)
        assert client.sent == b""
        assert platform.traces.seen == [(499, "client_gone")]
        assert all(not record.billed for record in platform.journal.records)
        assert all(refunded for _, refunded in platform.limiter.used.values())


@pytest.mark.parametrize("driver", ["sglang", "openai"])
@pytest.mark.parametrize("write", [1, 2, 4])
@in_virtual_time
async def test_a_client_that_leaves_a_stream_pays_as_far_as_it_came(write: int, driver: str) -> None:
    """The engine waits for ever after 30 tokens: only stopping it ends it."""
    async with harness(driver=driver) as platform:
        platform.script(tokens=100, hang_after_tokens=30, inter_token_s=0.001)
        client = Client(leave_at_write=write)
        await served(platform, body(stream=True, max_tokens=100), client)
        (record,) = platform.journal.records
        exact = driver == "sglang"
        assert (record.finish, record.billed) == (Finish.CLIENT_GONE, True)
        assert record.outcome is (Outcome.EXACT if exact else Outcome.LOWER_BOUND)
        (made,) = platform.engines[0].records.values()
        assert (made.aborted, made.disconnected) == (exact, not exact)
        assert record.usage.completion_tokens <= made.tokens
        assert not exact or record.usage.completion_tokens == made.tokens
        assert platform.traces.seen == [(200, "client_gone")]


async def test_a_client_that_leaves_while_its_engine_is_silent_has_it_stopped() -> None:
    async with harness() as platform:
        platform.script(hang=True)
        client = Client()
        serving = asyncio.create_task(served(platform, WHOLE, client))
        await platform.engine_has(requests=1)
        client.leave()
        await serving
        assert finishes(platform) == [(Finish.CLIENT_GONE, Outcome.EXACT, True)]
        assert platform.journal.records[0].status == 499


async def test_a_request_whose_client_left_is_not_sent_again_if_its_connection_ends() -> None:
    """Its connection was kept alive, and may have ended before the engine had the request."""
    async with harness(engines=1) as platform:
        await platform.serve(Client())
        platform.script(hang=True)
        client = Client()
        serving = asyncio.create_task(platform.serve(client))
        await platform.engine_has(requests=2)
        (engine,) = platform.engines
        (generating,) = engine.live.values()
        platform.script(hang=False)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(generating, "abort", generating._connection.die)
            client.leave()
            await serving
        platform.require_balanced()
        assert engine.requests == 2
        record = platform.journal.records[-1]
        assert (record.finish, record.outcome) == (Finish.CLIENT_GONE, Outcome.LOWER_BOUND)
        assert record.usage.completion_tokens == 0


@pytest.mark.parametrize("driver", ["openai", "llama_cpp", "vllm", "sglang"])
async def test_a_client_that_leaves_as_its_engine_refuses_pays_nothing(
    driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = EngineStream.changed
    async with harness(driver=driver) as platform:
        platform.script(status=429)
        client = Client()

        def leaves(stream: EngineStream) -> None:
            changed(stream)
            client.connection.lost()

        monkeypatch.setattr(EngineStream, "changed", leaves)
        await served(platform, STREAM, client)
        assert finishes(platform) == [(Finish.CLIENT_GONE, Outcome.EXACT, False)]
        assert platform.limiter.used.popitem()[1][0].micro == 0


@pytest.mark.parametrize("asked", [WHOLE, STREAM])
@pytest.mark.parametrize("step", ["closed", "settle"])
async def test_a_client_that_leaves_while_books_are_closed_pays_all_of_it(step: str, asked: bytes) -> None:
    async with harness() as platform:
        client = Client()
        platform.faults.calls[step] = client.leave
        await served(platform, asked, client)
        assert finishes(platform) == [(Finish.COMPLETE, Outcome.EXACT, True)]
        assert b"[DONE]" not in client.sent


async def test_a_client_that_leaves_once_it_has_everything_changes_nothing() -> None:
    async with harness() as platform:
        client = await served(platform)
        client.connection.lost()
        assert client.answer.complete
        platform.require_balanced()


async def test_a_client_that_stops_reading_holds_its_engine_back_and_is_cut() -> None:
    async with harness() as platform:
        platform.script(tokens=100, inter_token_s=0.001)
        client = Client()
        serving = asyncio.create_task(served(platform, body(stream=True, max_tokens=100), client))
        await client.reads(b"t1")
        client.stop_reading()
        (wait,) = platform.idle._waits
        while wait.limit_s != platform.config.client_stall_timeout_s:  # noqa: ASYNC110  the turns until the next event finds it so
            await asyncio.sleep(0)
        platform.idle.sweep(time.monotonic() + platform.config.client_stall_timeout_s + 1)
        await serving
        assert finishes(platform)[0][0] is Finish.CLIENT_GONE


async def test_a_client_that_reads_on_gets_all_of_it() -> None:
    async with harness() as platform:
        platform.script(tokens=50)
        client = Client()
        client.stop_reading()
        serving = asyncio.create_task(served(platform, body(stream=True, max_tokens=100), client))
        await client.reads(b"HTTP/1.1 200")
        client.read_on()
        await serving
        assert client.answer.events[-1] == "[DONE]"
        assert platform.journal.records[0].usage.completion_tokens == 50


# parts that fail while it runs


@pytest.mark.parametrize("error", [JournalUnavailable("disk full", retry_after_s=1), RuntimeError("a defect")])
@pytest.mark.parametrize("step", ["closed", "settle"])
@pytest.mark.parametrize("asked", [WHOLE, STREAM])
async def test_books_that_cannot_be_closed_are_an_error_and_never_a_good_end(
    asked: bytes, step: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async with harness() as platform:
        platform.faults.raises[step] = error
        client = await served(platform, asked)
        assert client.answer.complete
        assert b"[DONE]" not in client.sent
        code = error.code if isinstance(error, ServiceError) else "internal_error"
        told = client.answer.json if asked is WHOLE else client.answer.events[-1]
        assert told["error"]["code"] == code
        assert ("a defect" in caplog.text) is (code == "internal_error")


@pytest.mark.parametrize("step", ["reserve", "opened", "acquire", "placed"])
async def test_a_defect_is_an_error_with_the_requests_id(step: str, caplog: pytest.LogCaptureFixture) -> None:
    async with harness() as platform:
        platform.faults.raises[step] = RuntimeError("a defect")
        client = await served(platform)
        error = client.answer.json["error"]
        assert (client.answer.status, error["code"]) == (500, "internal_error")
        assert client.answer.headers["x-request-id"] in error["message"]
        assert "a defect" in caplog.text


async def test_a_gateway_that_stops_closes_the_books_of_what_it_cuts() -> None:
    async with harness() as platform:
        platform.script(hang_after_tokens=2)
        client = Client()
        serving = asyncio.create_task(platform.serve(client))
        await client.reads(b"t1")
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        await platform.engines_idle()
        platform.require_balanced()
        assert finishes(platform) == [(Finish.CLIENT_GONE, Outcome.EXACT, True)]


@in_virtual_time
async def test_an_engine_that_does_not_confirm_an_abort_is_left_after_a_while() -> None:
    async with harness(abort_drain_s=0.05) as platform:
        platform.script(tokens=100, hang_after_tokens=5, own_ids=True)
        client = Client()
        serving = asyncio.create_task(served(platform, body(stream=True, n=2), client))
        await client.reads(b"t4")
        async with asyncio.timeout(GUARD_S):
            client.leave()
            await serving
        assert finishes(platform) == [(Finish.CLIENT_GONE, Outcome.LOWER_BOUND, True)]
        assert platform.journal.records[0].usage.completion_tokens == 10


@pytest.mark.parametrize("ended", [True, False])
async def test_a_client_that_leaves_while_the_end_is_looked_up_leaves_no_attempt_open(ended: bool) -> None:
    async with harness() as platform:
        client, asked, answer = Client(), asyncio.Event(), asyncio.Event()
        request = await platform.request()

        async def was_ended() -> bool:
            asked.set()
            await answer.wait()
            return ended

        request.was_ended = was_ended
        async with asyncio.timeout(GUARD_S):
            running = asyncio.create_task(platform.run(request, client))
            await asked.wait()
            client.connection.lost()
            await asyncio.sleep(0)
            answer.set()
            await asyncio.wait([running])
        platform.require_balanced()
        assert request.tenant_left is ended
        assert [record.finish for record in platform.journal.records] == [Finish.COMPLETE]


class StopsReading(Client):
    """Reads the first token, and no more."""

    def _written(self, data: bytes) -> None:
        super()._written(data)
        if b'" t0"' in data:
            self.stop_reading()


@pytest.mark.parametrize("driver", ["openai", "llama_cpp", "vllm", "sglang"])
async def test_a_client_that_leaves_with_events_unread_pays_what_the_engine_counted(driver: str) -> None:
    async with harness(engines=1, driver=driver) as platform:
        platform.script(tokens=50)
        client = StopsReading()
        async with asyncio.timeout(GUARD_S):
            running = asyncio.create_task(platform.serve(client, body(stream=True, max_tokens=60)))
            await platform.engine_has(finished=1)
            await asyncio.sleep(0)
            client.connection.lost()
            await asyncio.wait([running])
        platform.require_balanced()
        [record] = platform.journal.records
        assert (record.usage.completion_tokens, record.outcome, record.billed) == (50, Outcome.EXACT, True)
