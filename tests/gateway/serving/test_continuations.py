"""One generation for a gap that is asked for twice, and for one that was typed on into what the model wrote."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from contracts.errors import RouterUnavailable
from contracts.fill_in_the_middle import FillInTheMiddle
from contracts.usage import Finish, Outcome, Usage
from gateway.limits.cost import Cost
from gateway.serving import follower
from gateway.serving.continuations import ENTRY_BYTES, KEPT_S
from gateway.wire.config import RequestConfig
from gateway.wire.digest import digest_of
from gateway.wire.format import WireFormat
from gateway.wire.llama_cpp.format import InfillFormat
from gateway.wire.mistral.format import FimFormat
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import COMPLETION, EDITOR, GUARD_S, Harness, harness
from tests.waiting import eventually

FIM, INFILL = FimFormat(RequestConfig()), InfillFormat(RequestConfig())
FILE = "def add(left, right):\n    return left + right\n"
PREFIX = FILE[:10]
"""`def add(le`; the model goes on with `ft, right):\n    …`, three characters a token."""
REST = FILE[10:]


def fim(prefix: str = PREFIX, **fields: Any) -> bytes:
    return msgspec.json.encode({"model": "m", "prompt": prefix, "suffix": "", "stream": True, **fields})


def fim_text(client: Client) -> str:
    """What a client of Mistral's was sent."""
    answer = client.answer
    assert answer.complete
    if not answer.headers["content-type"].startswith("text/event-stream"):
        return str(answer.json["choices"][0]["message"]["content"])
    assert answer.events[-1] == "[DONE]"
    return "".join(event["choices"][0]["delta"].get("content") or "" for event in answer.events[:-1])


SCRIPT = b"python-requests/2.32"


class Asking:
    """Requests in flight."""

    def __init__(self, platform: Harness) -> None:
        self.platform = platform
        self.tasks: list[asyncio.Task[Any]] = []

    def ask(self, asked: bytes, wire_format: WireFormat[Any] = FIM, agent: bytes = EDITOR) -> Client:
        client = Client()
        self.tasks.append(asyncio.create_task(self.platform.serve(client, asked, wire_format, agent)))
        return client

    async def ended(self) -> None:
        self.requests_ended = await asyncio.gather(*self.tasks)
        await self.platform.engines_idle()
        self.platform.require_balanced()

    async def at_the_engine(self, requests: int = 1) -> None:
        """Return once so many have come there."""
        await self.platform.engine_has(requests=requests)

    async def reading(self, readings: int) -> None:
        """Return once so many read what is generated for others."""
        continuations = self.platform.serving.continuations
        recordings = [recording for place in continuations._places.values() for recording in place]
        async with asyncio.timeout(GUARD_S):
            while sum(len(recording.readings) for recording in recordings) < readings:  # noqa: ASYNC110
                await asyncio.sleep(0)  # the turns until they have come

    async def goes_on(self) -> None:
        """Let the engine write the rest, and return once all requests have ended."""
        self.platform.go_on()
        await self.ended()

    async def begun(self, text: bytes = b"ft") -> Client:
        """The first request for the gap, once its client has read this."""
        leader = self.ask(fim())
        await leader.reads(text)
        return leader

    async def shared(self, *asked: bytes, text: bytes = b"ft") -> list[Client]:
        """The first request and those that then read what is generated for it."""
        clients = [await self.begun(text), *map(self.ask, asked)]
        await self.reading(len(asked))
        return clients

    async def one_after_another(self, *asked: bytes) -> list[Client]:
        """Each request once the one before it has ended."""
        clients = []
        for body in asked:
            clients.append(self.ask(body))
            await self.ended()
        return clients

    @property
    def requests(self) -> int:
        return self.platform.engines[0].requests

    def reused(self, kind: str) -> float | None:
        return self.platform.sample("slipstream_generations_reused_total", tier="chat", kind=kind)


@contextlib.asynccontextmanager
async def asking(**script: Any) -> AsyncIterator[Asking]:
    """script: the engine's beside `file`."""
    async with harness(engines=1, driver="embedded") as platform:
        platform.script(file=FILE, **script)
        yield Asking(platform)


# the same gap, being filled


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("hangs", [{"hang": True}, {"hang_after_tokens": 2}])
async def test_a_gap_that_is_being_filled_is_filled_once(stream: bool, hangs: dict[str, Any]) -> None:
    async with asking(**hangs) as platform:
        leader = platform.ask(fim())
        await platform.at_the_engine()
        followers = [platform.ask(fim(stream=stream)) for _ in range(2)]
        await platform.reading(2)
        await platform.goes_on()
        assert [fim_text(client) for client in (leader, *followers)] == [REST] * 3
        assert platform.requests == 1
        assert platform.reused("shared") == 2


async def test_who_shares_a_stream_says_once_where_its_time_went(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: each event of it was a header more that nobody was sent."""
    told: list[object] = []

    def timing(clock: object) -> tuple[bytes, bytes]:
        told.append(clock)
        return b"server-timing", b"x"

    monkeypatch.setattr(follower, "server_timing", timing)
    async with asking(hang_after_tokens=2) as asked:
        asked.ask(fim())
        await asked.at_the_engine()
        other = asked.ask(fim())
        await asked.reading(1)
        await asked.goes_on()
        assert len(other.answer.events) > 3
        assert len(told) == 1


async def test_who_shares_has_books_of_its_own_with_nothing_used() -> None:
    async with asking(hang_after_tokens=2) as platform:
        leader, follower = await platform.shared(fim(stream=False))
        await platform.goes_on()
        first, second = platform.platform.journal.records
        if first.replica_id is None:
            first, second = second, first
        assert (first.billed, first.usage.prompt_tokens, first.usage.completion_tokens) == (True, 7, 12)
        assert (second.finish, second.outcome, second.usage, second.replica_id, second.status) == (
            Finish.COMPLETE,
            Outcome.EXACT,
            Usage(),
            None,
            200,
        )
        assert platform.platform.limiter.used[second.opened.request_id] == (Cost(), False), "the request counts"
        ids = {client.answer.headers["x-request-id"] for client in (leader, follower)}
        assert ids == {first.opened.request_id, second.opened.request_id}
        assert follower.answer.headers["x-slipstream-served-from"] == first.opened.request_id
        assert "x-slipstream-served-from" not in leader.answer.headers
        assert follower.answer.json["usage"] == {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        assert len(platform.platform.router.granted) == 1


async def test_formats_share_a_generation_and_each_has_its_own_answer() -> None:
    """OpenAI's clients have no rules of ours: what they share is another client's of theirs."""
    gap = {"model": "m", "prompt": PREFIX, "suffix": "", "temperature": 0, "max_tokens": 40}
    async with asking(hang_after_tokens=2) as platform:
        leader = platform.ask(msgspec.json.encode({**gap, "stream": True}), COMPLETION)
        await leader.reads(b"ft")
        asked = {**gap, "stream": True, "stream_options": {"include_usage": True}}
        streamed = platform.ask(msgspec.json.encode(asked), COMPLETION)
        whole = platform.ask(msgspec.json.encode(gap), COMPLETION)
        await platform.reading(2)
        await platform.goes_on()
        assert platform.requests == 1
        events = streamed.answer.events
        assert "".join(choice["text"] for event in events[:-1] for choice in event["choices"]) == REST
        assert events[-2]["usage"]["total_tokens"] == 0
        assert {event["id"] for event in events[:-1]} == {
            whole.answer.json["id"].replace(
                whole.answer.headers["x-request-id"].removeprefix("req_"),
                streamed.answer.headers["x-request-id"].removeprefix("req_"),
            )
        }
        assert whole.answer.json["choices"] == [{"index": 0, "text": REST, "logprobs": None, "finish_reason": "stop"}]


@pytest.mark.parametrize(
    "other",
    [
        {"suffix": "\n"},
        {"max_tokens": 20},
        {"temperature": 0.3},
        {"stop": ["x"]},
        {"prompt": FILE[:5]},
        {"prompt": "#" + PREFIX[1:]},
        {"model": "m", "prompt": FILE[:40]},
    ],
)
async def test_what_differs_is_generated(other: dict[str, Any]) -> None:
    async with asking(hang_after_tokens=2) as platform:
        await platform.begun()
        platform.ask(fim(**other))
        await platform.at_the_engine(2)
        await platform.goes_on()


@pytest.mark.parametrize(
    "sampled", [{}, {"temperature": 0.8}, {"temperature": 0, "logprobs": 1}, {"temperature": 0, "n": 2}]
)
async def test_who_may_want_several_answers_has_them(sampled: dict[str, Any]) -> None:
    asked = msgspec.json.encode({"model": "m", "prompt": PREFIX, "suffix": "", "stream": True, **sampled})
    async with asking(hang_after_tokens=2) as platform:
        leader = platform.ask(asked, COMPLETION, SCRIPT)
        await leader.reads(b"ft")
        platform.ask(asked, COMPLETION, SCRIPT)
        await platform.at_the_engine(2)
        await platform.goes_on()


async def test_another_key_shares_nothing() -> None:
    async with asking(hang_after_tokens=2) as platform:
        await platform.begun()
        request = await platform.platform.request(FIM, fim())
        request.caller = msgspec.structs.replace(request.caller, key_id="another")
        with platform.platform.serving.continuations.joined(request):
            assert request.reading is None
        await platform.goes_on()


# typed on


@pytest.mark.parametrize("typed", [1, 3, 7])
@pytest.mark.parametrize("stream", [True, False])
async def test_what_is_typed_on_in_flight_follows_the_stream(typed: int, stream: bool) -> None:
    async with asking(hang_after_tokens=4) as platform:
        leader, follower = await platform.shared(fim(FILE[: 10 + typed], stream=stream), text=b"ht)")
        await platform.goes_on()
        assert fim_text(leader) == REST
        assert fim_text(follower) == REST[typed:]
        assert platform.requests == 1
        assert platform.reused("continued") == 1


@pytest.mark.parametrize("typed", [1, 3, 20, len(REST) - 2])
async def test_what_is_typed_on_afterwards_is_answered_from_what_was_written(typed: int) -> None:
    async with asking() as platform:
        _, follower = await platform.one_after_another(fim(), fim(FILE[: 10 + typed]))
        assert fim_text(follower) == REST[typed:]
        assert platform.requests == 1


@pytest.mark.parametrize("prefix", [PREFIX, PREFIX + "n", FILE], ids=["once more", "differently", "all of it"])
async def test_another_answer_is_generated_unless_part_of_the_first_was_typed_on(prefix: str) -> None:
    async with asking() as platform:
        await platform.one_after_another(fim(), fim(prefix))
        assert platform.requests == 2


@pytest.mark.parametrize(("typed", "requests"), [(6, 1), (7, 2)])
async def test_of_a_text_that_its_limit_ended_half_must_be_left(typed: int, requests: int) -> None:
    async with asking() as platform:
        asked = fim(max_tokens=4), fim(FILE[: 10 + typed], max_tokens=4)
        _, follower = await platform.one_after_another(*asked)
        assert platform.requests == requests
        assert fim_text(follower) == (REST[typed:12] if requests == 1 else REST[typed : typed + 12])


async def test_each_client_has_its_own_stop_rules() -> None:
    """llama.cpp's `n_indent` ends the block; what is typed on ends there too, and the engine is not asked again."""
    infill = {"input_prefix": "", "prompt": FILE[:22], "input_suffix": "", "n_indent": 4, "stream": True}
    file = FILE + "other = 1\n"
    async with asking() as platform:
        platform.platform.script(file=file)
        first = platform.ask(msgspec.json.encode({"model": "m", **infill}), INFILL)
        await platform.ended()
        second = platform.ask(msgspec.json.encode({"model": "m", **infill, "prompt": FILE[:30]}), INFILL)
        await platform.ended()
        texts = ["".join(event.get("content", "") for event in one.answer.events) for one in (first, second)]
        assert texts == [FILE[22:].rstrip("\n"), FILE[30:].rstrip("\n")]
        assert platform.requests == 1


# generations that end early


@pytest.mark.parametrize("stream", [True, False])
async def test_a_leader_whose_client_leaves_goes_on_for_those_who_read(stream: bool) -> None:
    async with asking(hang_after_tokens=2) as platform:
        leader, follower = await platform.shared(fim(PREFIX + "f", stream=stream))
        leader.leave()
        await asyncio.sleep(0)
        await platform.goes_on()
        assert fim_text(follower) == REST[1:]
        assert platform.requests == 1
        [record] = [one for one in platform.platform.journal.records if one.replica_id is not None]
        assert (record.finish, record.outcome, record.billed) == (Finish.CLIENT_GONE, Outcome.EXACT, True)
        assert record.usage.completion_tokens == 12, "generated for its key, which pays for it once"


@pytest.mark.parametrize("hangs", [{"hang": True}, {"hang_after_tokens": 2}])
async def test_when_all_have_left_the_engine_is_stopped(hangs: dict[str, Any]) -> None:
    async with asking(**hangs) as platform:
        leader = platform.ask(fim())
        await platform.at_the_engine()
        follower = platform.ask(fim())
        await platform.reading(1)
        leader.leave()
        follower.leave()
        await platform.ended()
        [record] = platform.platform.engines[0].records.values()
        assert record.aborted
        assert len(platform.platform.serving.continuations) == 0


async def test_of_a_leader_that_is_refused_the_others_ask_for_themselves() -> None:
    async with asking() as platform:
        platform.platform.faults.raises["acquire"] = RouterUnavailable("away", retry_after_s=1)
        leader, follower = platform.ask(fim()), platform.ask(fim())
        await platform.ended()
        assert leader.answer.status == 503
        assert fim_text(follower) == REST
        assert platform.reused("abandoned") == 1


@pytest.mark.parametrize("stream", [True, False])
async def test_who_was_sent_nothing_asks_for_itself_and_who_was_breaks_off_with_its_leader(stream: bool) -> None:
    async with asking(die_after_tokens=2) as platform:
        leader, follower = platform.ask(fim()), platform.ask(fim(stream=stream))
        platform.platform.faults.calls["closed"] = lambda: platform.platform.script(die_after_tokens=-1)
        await platform.ended()
        assert leader.answer.events[-1]["error"]["code"] == "engine_failed"
        if stream:
            assert follower.answer.events[-1]["error"]["code"] == "engine_failed"
        else:
            assert fim_text(follower) == REST


async def test_what_an_engine_aborts_answers_nobody() -> None:
    async with asking(hang_after_tokens=3) as platform:
        leader, follower = platform.ask(fim()), platform.ask(fim())
        for client in (leader, follower):
            await client.reads(b"right")
        platform.platform.abort()
        await platform.ended()
        assert [client.answer.events[-1]["error"]["code"] for client in (leader, follower)] == ["engine_failed"] * 2
        platform.platform.script(hang_after_tokens=-1)
        [later] = await platform.one_after_another(fim(PREFIX + "ft"))
        assert fim_text(later)
        assert (platform.requests, platform.reused("continued")) == (2, None)


async def test_who_was_sent_nothing_of_what_an_engine_aborts_asks_for_itself() -> None:
    async with asking(hang_after_tokens=3) as platform:
        leader, follower = await platform.shared(fim(stream=False), text=b"right")
        platform.platform.faults.calls["closed"] = lambda: platform.platform.script(hang_after_tokens=-1)
        platform.platform.abort()
        await platform.ended()
        assert leader.answer.events[-1]["error"]["code"] == "engine_failed"
        assert fim_text(follower) == REST


@pytest.mark.parametrize("stream", [True, False])
async def test_who_types_something_else_ends_those_who_read_and_whom_they_read(stream: bool) -> None:
    async with asking(hang_after_tokens=2) as platform:
        leader, follower = await platform.shared(fim(PREFIX + "f", stream=stream), text=b" ri")
        if stream:
            await follower.reads(b"t, ri")
        newer = platform.ask(fim(PREFIX + "fx"))
        await platform.at_the_engine(2)
        await platform.goes_on()
        newer_id = newer.answer.headers["x-request-id"]
        assert fim_text(follower) == REST[1:6]
        assert fim_text(leader) == REST[:6]
        assert [request.superseded_by for request in platform.requests_ended[:2]] == [newer_id] * 2
        assert platform.requests == 2
        assert platform.platform.sample("slipstream_superseded_total", stage="decode") == 2


async def test_who_reads_what_is_superseded_and_was_typed_over_ends_with_it() -> None:
    """The newer keystroke takes back what the reader has typed: it is typed on the leader only."""
    async with asking(hang_after_tokens=2) as platform:
        _, follower = await platform.shared(fim(PREFIX + "f"), text=b" ri")
        await follower.reads(b"t, ri")
        newer = platform.ask(fim(PREFIX + "x"))
        await platform.at_the_engine(2)
        await platform.goes_on()
        newer_id = newer.answer.headers["x-request-id"]
        assert fim_text(follower) == REST[1:6]
        by = {request.request_id: request.superseded_by for request in platform.requests_ended}
        assert sorted(by.values(), key=str) == [None, newer_id, newer_id]


async def test_what_somebody_still_reads_is_not_superseded() -> None:
    """The same prefix as the reader's, asked of another API: the reader's answer is its own."""
    async with asking(hang_after_tokens=2) as platform:
        _, follower = await platform.shared(fim(PREFIX + "f"), text=b" ri")
        await follower.reads(b"t, ri")
        platform.ask(fim(PREFIX + "f", max_tokens=3))
        await platform.at_the_engine(2)
        await platform.goes_on()
        assert fim_text(follower) == REST[1:]
        assert [request.superseded_by for request in platform.requests_ended] == [None] * 3


@pytest.mark.parametrize("stream", [True, False])
async def test_who_shares_is_measured_and_says_nothing_of_any_engine(stream: bool) -> None:
    async with asking(hang_after_tokens=2) as platform:
        await platform.shared(fim(stream=stream))
        await platform.goes_on()
        first, second = (request.measurement for request in platform.requests_ended)
        assert (first.pool, first.replica_id, first.completion_tokens) == ("pool", "engine-0", 12)
        assert second.ttft_ms > 0
        assert (second.attempts, second.stream) == (1, stream)
        assert second.prompt_tokens > 0
        ran = (second.pool, second.replica_id, second.canary, second.cached_tokens, second.completion_tokens)
        assert ran == (None, None, None, None, None)
        assert (second.tpot_ms, second.itl_max_ms, second.gaps_over_100ms) == (None, None, None)
        labels = {"tier": "chat", "length": "short", "model": "m", "side": "baseline"}
        for pool in ("pool", ""):
            counted = platform.platform.sample("slipstream_time_to_first_token_seconds_count", pool=pool, **labels)
            assert counted == 1
        assert platform.platform.sample("slipstream_longest_gap_seconds_count", pool="", **labels) == 0


async def test_who_does_not_read_holds_up_nobody() -> None:
    async with asking(hang_after_tokens=2) as platform:
        leader, follower = await platform.shared(fim(PREFIX + "f"), text=b" ri")
        await follower.reads(b"t, ri")
        follower.stop_reading()
        platform.platform.go_on()
        await platform.tasks[0]
        assert fim_text(leader) == REST
        assert not platform.tasks[1].done()
        follower.read_on()
        await platform.ended()
        assert fim_text(follower) == REST[1:]
        first, second = (request.measurement for request in platform.requests_ended)
        assert first.client_stall_ms == 0.0 < second.client_stall_ms


async def test_a_text_is_kept_for_a_minute_after_its_last_use(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asking() as platform:
        continuations, now_s = platform.platform.serving.continuations, 0.0
        monkeypatch.setattr(continuations, "_now", lambda: now_s)
        await platform.one_after_another(*(fim(f"{number}") for number in range(3)))
        now_s = 59.0
        [used] = await platform.one_after_another(fim("1 t0"))
        assert fim_text(used).startswith(" t1")
        assert platform.requests == 3
        now_s = 61.0
        continuations._later()
        (kept,) = continuations._kept
        assert kept.cursor.prefix_digest == digest_of(("1",))
        assert len(continuations) == 1
        now_s = 59.0 + KEPT_S
        continuations._later()
        assert (len(continuations), continuations._kept_bytes, continuations._timer) == (0, 0, None)


async def test_texts_are_forgotten_also_when_nobody_asks_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.serving.continuations.KEPT_S", 0.05)
    async with asking() as platform:
        await platform.one_after_another(*(fim(f"{number}") for number in range(3)))
        continuations = platform.platform.serving.continuations
        await eventually(lambda: not len(continuations))
        assert continuations._timer is None


async def test_texts_take_a_bounded_memory_and_the_oldest_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asking() as platform:
        continuations = platform.platform.serving.continuations
        monkeypatch.setattr(continuations, "_limit_bytes", 3 * (ENTRY_BYTES + 200))
        for number in range(5):
            await platform.one_after_another(fim(f"{number}"))
            assert continuations._kept_bytes <= continuations._limit_bytes
        kept = [recording.cursor.prefix_digest for recording in continuations._kept]
        assert kept == [digest_of((text,)) for text in ("2", "3", "4")]
        assert len(continuations) == 3


async def test_a_stopped_pipeline_keeps_no_text() -> None:
    async with asking() as platform:
        await platform.one_after_another(fim())
        continuations = platform.platform.serving.continuations
        timer = continuations._timer
        assert len(continuations) == 1
        assert timer is not None
        await platform.platform.serving.stop()
        assert (len(continuations), continuations._kept_bytes) == (0, 0)
        assert timer.cancelled()


async def test_a_model_whose_generations_are_not_reused_is_asked_every_time() -> None:
    async with asking(hang_after_tokens=2) as platform:
        request = await platform.platform.request(FIM, fim())
        model = msgspec.structs.replace(request.target.model, fim=FillInTheMiddle(reuse=False))
        request.target = msgspec.structs.replace(request.target, model=model)
        with platform.platform.serving.continuations.joined(request):
            assert (request.reading, request.recording) == (None, None)
