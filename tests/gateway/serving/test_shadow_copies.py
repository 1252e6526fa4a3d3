"""Requests copied to a candidate: after the answer, on nobody's bill, beside nobody, whatever the candidate does."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.desired_state import Canary, Model
from contracts.errors import Overloaded, RouterUnavailable
from contracts.generation import BACKGROUND_PRIORITY, Tier
from contracts.split import Side, side_of, unit_of
from contracts.usage import Finish
from engines.drivers import registry as drivers
from gateway.auth.key_record import KeyRecord
from gateway.limits.cost import Cost
from gateway.serving.request import Arrival, InferenceRequest
from gateway.serving.shadow_copies import NO_ID
from gateway.shadow.config import ShadowConfig
from gateway.shadow.pair import Outcome
from gateway.wire.format import WireFormat
from gateway.wire.prepared import Target
from tests.examples import examples
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import CHAT, COMPLETION, GUARD_S, KEY, Harness, body, harness
from tests.virtual_time import in_virtual_time

REVIEWED = msgspec.structs.replace(KEY, allow_reviews=True)
STORING = msgspec.structs.replace(KEY, store_prompts=True)


def split(share: float = 1.0, **canary: Any) -> Model:
    return Model("m", Tier.CHAT, "pool", 4_096, canary=Canary("candidate", shadow_share=share, share=0.0, **canary))


class Shadowed:
    """A platform whose second engine is the candidate of every request's model."""

    def __init__(self, platform: Harness) -> None:
        self.platform = platform
        live, candidate = platform.places
        self.candidate = msgspec.structs.replace(candidate, pool="candidate")
        platform.router.engines = (live, self.candidate)
        self.live_engine, self.candidate_engine = platform.engines

    @property
    def copies(self) -> Any:
        return self.platform.serving.shadow_copies

    async def serve(
        self,
        asked: bytes | None = None,
        model: Model | None = None,
        wire_format: WireFormat[Any] = CHAT,
        key: KeyRecord = KEY,
        client: Client | None = None,
    ) -> Client:
        target = Target(model or split(), drivers.get("sglang").capabilities, None)
        arrival = Arrival(wire_format, {})
        decoded = wire_format.decode(asked if asked is not None else body(stream=True))
        prepared = await wire_format.prepare(decoded, arrival.request_id, key.caller, "salt", target)
        request = InferenceRequest(arrival, key, target, prepared)
        client = client or Client()
        async with asyncio.timeout(GUARD_S):
            await self.platform.run(request, client)
        return client

    async def copied(self, *asked: Any, **options: Any) -> Client:
        """Serve one request as `serve` does, and let its copy end."""
        client = await self.serve(*asked, **options)
        await self.rests()
        return client

    async def rests(self) -> None:
        """Return once no copy runs any more."""
        async with asyncio.timeout(GUARD_S):
            while tasks := self.copies._tasks:
                await asyncio.wait(tasks)

    async def candidate_asked(self) -> None:
        """Return once the candidate was sent a request."""
        await self.platform.engine_has(1, requests=1)

    def outcomes(self) -> dict[str, float]:
        kinds = ("compared", "answered", "failed", "late", "long", "busy", "superseded", "limited")
        found = {
            kind: self.platform.sample("slipstream_shadow_copies_total", model="m", outcome=kind) for kind in kinds
        }
        return {kind: count for kind, count in found.items() if count}

    def script(self, **script: Any) -> None:
        """What the candidate does from now on."""
        self.candidate_engine.control(msgspec.json.encode(script))


@contextlib.asynccontextmanager
async def shadowed(gateway: dict[str, Any] | None = None, **shadow: Any) -> AsyncIterator[Shadowed]:
    """gateway, shadow: settings that are not the default."""
    async with harness(engines=2, shadow=ShadowConfig(**shadow), **(gateway or {})) as platform:
        running = Shadowed(platform)
        yield running
        await platform.serving.stop()
        platform.require_balanced()
        assert not running.copies._tasks
        assert not running.copies._listened


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire_format", [CHAT, COMPLETION])
async def test_a_request_is_copied_and_both_answers_are_compared(stream: bool, wire_format: WireFormat[Any]) -> None:
    async with shadowed() as to:
        asked = body(stream=stream, temperature=0) if wire_format is CHAT else _completion(stream)
        await to.copied(asked, wire_format=wire_format)
        [pair] = to.platform.pairs.kept
        found = pair.comparison
        assert found is not None
        assert (pair.outcome, pair.baseline_pool, pair.candidate_pool) == (Outcome.COMPARED, "pool", "candidate")
        assert (pair.greedy, pair.model, pair.prompt_tokens, pair.stage_share) == (True, "m", 7, 0.0)
        assert (found.same_text, found.baseline_finish, found.candidate_finish) == (True, "stop", "stop")
        assert found.baseline_characters == found.candidate_characters > 0
        assert (found.baseline_completion_tokens, found.candidate_completion_tokens) == (4, 4)
        assert found.baseline_ttft_ms is not None
        assert found.candidate_ttft_ms is not None
        assert to.outcomes() == {"compared": 1}


def _completion(stream: bool) -> bytes:
    return msgspec.json.encode({"model": "m", "prompt": "hi", "stream": stream, "temperature": 0})


@pytest.mark.parametrize("share", [0.01, 0.05, 0.25])
async def test_requests_of_the_baseline_are_copied_in_every_stage_and_those_of_both_arms_are_not(share: float) -> None:
    canary = Canary("candidate", shadow_share=1.0, share=share, control=True, release="r1", salt="s")
    model = Model("m", Tier.CHAT, "pool", 4_096, canary=canary)
    # of each side one session, by who its requests say they are
    users = {side_of(model, unit_of(KEY.caller.organization_id, f"u{n}")): f"u{n}" for n in range(2_000)}
    async with shadowed() as to:
        for side, user in users.items():
            if side is not Side.CANDIDATE:
                await to.copied(body(user=user), model=model)
        [pair] = to.platform.pairs.kept
        assert (pair.outcome, pair.stage_share, pair.release) == (Outcome.COMPARED, share, "r1")
        await to.copied(body(user=users[Side.CANDIDATE]), model=model)
        assert (len(to.platform.pairs.kept), to.outcomes()) == (1, {"compared": 1})


async def test_it_begins_when_the_client_has_its_whole_answer() -> None:
    async with shadowed() as to:
        client = Client()
        seen: list[bytes] = []
        acquire = to.platform.router.acquire

        async def noting(ask: Any) -> Any:
            if ask.idle_replica:
                seen.append(client.sent)
            return await acquire(ask)

        to.platform.router.acquire = noting  # type: ignore[method-assign]
        await to.copied(client=client)
        assert client.answer.complete
        assert seen == [client.sent]


async def test_it_is_in_the_books_as_nobodys_and_on_no_bill() -> None:
    async with shadowed() as to:
        await to.copied()
        platform = to.platform
        real, copy = platform.journal.records
        assert real.billed
        assert (copy.opened.endpoint, copy.billed, copy.status, copy.finish) == ("shadow", False, 200, Finish.COMPLETE)
        opened = copy.opened
        assert {opened.organization_id, opened.project_id, opened.key_id} == {NO_ID}
        assert (copy.usage.prompt_tokens, copy.usage.completion_tokens) == (7, 4)
        assert platform.limiter.used == {real.opened.request_id: (Cost(7, 4, 11), False)}
        assert platform.sample("slipstream_tokens_total", tier="chat", kind="prompt") == 7
        assert len(platform.traces.seen) == len(platform.prefixes.seen) == 1
        assert not platform.texts.kept


async def test_the_candidate_is_asked_the_same_on_behalf_of_nobody_with_caches_of_its_own() -> None:
    async with shadowed() as to:
        await to.copied(body(stream=True, temperature=0.5, seed=7, user="ada"))
        live, copy = to.platform.router.asks
        assert (copy.idle_replica, copy.deadline_s, copy.organization_id) == ("engine-1", 0.0, NO_ID)
        assert (copy.session_id, copy.prefix_hashes, copy.affinity) == ("", b"", b"")
        assert live.idle_replica == ""
        [asked], [copied] = (
            [msgspec.json.decode(record.body) for record in engine.records.values()]
            for engine in (to.live_engine, to.candidate_engine)
        )
        assert copied.pop("priority", BACKGROUND_PRIORITY) == BACKGROUND_PRIORITY
        assert copied.pop("cache_salt") != asked.pop("cache_salt")
        assert copied.pop("rid") != asked.pop("rid")
        assert copied == asked


@pytest.mark.parametrize(
    "model",
    [
        Model("m", Tier.CHAT, "pool", 4_096),
        split(0.0),
        Model("m", Tier.CHAT, "pool", 4_096, canary=Canary("pool", shadow_share=1.0)),
    ],
)
async def test_nothing_is_copied_unless_it_is_asked_for(model: Model) -> None:
    async with shadowed() as to:
        await to.copied(model=model)
        assert (to.platform.pairs.kept, to.outcomes()) == ([], {})


async def test_neither_are_several_choices_nor_what_the_candidate_served() -> None:
    async with shadowed() as to:
        await to.serve(body(stream=True, n=2))
        to.platform.router.engines = (to.candidate,)
        await to.copied()
        assert (to.platform.pairs.kept, to.outcomes()) == ([], {})


@pytest.mark.parametrize("script", [{"status": 500}, {"status": 400}, {"die_after_tokens": 2}])
@pytest.mark.parametrize("alike", [False, True])
async def test_what_the_customers_own_engine_failed_at_is_copied_and_noted(script: dict[str, Any], alike: bool) -> None:
    """A candidate that fails at what its baseline fails at, too, is no worse."""
    async with shadowed() as to:
        to.live_engine.control(msgspec.json.encode(script))
        if alike:
            to.script(**script)
        await to.copied()
        [pair] = to.platform.pairs.kept
        failure = "engine_refused" if script == {"status": 400} else "engine_failed"
        assert (pair.baseline_error_code, pair.baseline_pool, pair.comparison) == (failure, "pool", None)
        said = (Outcome.FAILED, failure) if alike else (Outcome.ANSWERED, None)
        assert (pair.outcome, pair.error_code) == said
        assert to.outcomes() == {said[0].value: 1}


async def test_a_first_engine_that_failed_is_noted_though_another_answered() -> None:
    async with shadowed() as to:
        first = to.platform.router.acquire

        async def failing_first(ask: Any) -> Any:
            to.live_engine.control(msgspec.json.encode({"status": 200 if ask.attempt or ask.idle_replica else 500}))
            return await first(ask)

        to.platform.router.acquire = failing_first  # type: ignore[method-assign]
        client = await to.copied()
        assert client.answer.status == 200
        [pair] = to.platform.pairs.kept
        assert (pair.outcome, pair.baseline_error_code) == (Outcome.ANSWERED, "engine_failed")


@pytest.mark.parametrize("refusal", [Overloaded("not idle"), RouterUnavailable("away")])
async def test_a_candidate_that_is_not_idle_is_left_alone(refusal: Exception) -> None:
    async with shadowed() as to:
        first = to.platform.router.acquire

        async def refusing(ask: Any) -> Any:
            if ask.idle_replica:
                raise refusal
            return await first(ask)

        to.platform.router.acquire = refusing  # type: ignore[method-assign]
        await to.copied()
        assert (to.outcomes(), to.platform.pairs.kept) == ({"busy": 1}, [])
        assert len(to.platform.journal.records) == 1


async def test_whoever_is_given_its_replica_goes_first() -> None:
    async with shadowed() as to:
        to.script(hang=True)
        await to.serve()
        await to.candidate_asked()
        to.script(hang=False)
        to.platform.router.engines = (to.candidate,)
        await to.copied(model=Model("m", Tier.CHAT, "pool", 4_096))
        assert to.outcomes() == {"superseded": 1}
        copy = next(one for one in to.platform.journal.records if one.opened.endpoint == "shadow")
        assert (copy.finish, copy.billed) == (Finish.CLIENT_GONE, False)
        assert to.candidate_engine.records[copy.opened.request_id].aborted


async def test_it_ends_before_a_request_of_the_candidates_own_asks_for_a_place() -> None:
    async with shadowed() as to:
        to.script(hang=True)
        await to.serve()
        await to.candidate_asked()
        to.script(hang=False)
        under_way: list[int] = []
        to.platform.faults.calls["acquire"] = lambda: under_way.append(len(to.copies._by_replica))
        await to.serve(
            model=Model("m", Tier.CHAT, "pool", 4_096, canary=Canary("candidate", shadow_share=1.0, share=1.0))
        )
        await to.rests()
        assert under_way == [0]
        assert to.outcomes() == {"superseded": 1}


@pytest.mark.parametrize("failed", [False, True])
async def test_it_ends_with_the_gateway_and_is_noted(failed: bool) -> None:
    """Else the failures of a candidate, which never give way, would be compared with the few copies that end."""
    async with shadowed() as to:
        if failed:
            to.live_engine.control(msgspec.json.encode({"status": 400}))
        to.script(hang=True)
        await to.serve()
        await to.candidate_asked()
        await to.platform.serving.stop()
        assert to.outcomes() == {"superseded": 1}
        assert len(to.platform.journal.records) == 2
        noted = [(pair.outcome, pair.baseline_error_code) for pair in to.platform.pairs.kept]
        assert noted == [(Outcome.SUPERSEDED, "engine_refused" if failed else None)]


@in_virtual_time
async def test_one_that_hangs_is_late_and_no_fault_of_an_engine() -> None:
    async with shadowed(timeout_s=0.05) as to:
        to.script(hang=True)
        await to.copied()
        [pair] = to.platform.pairs.kept
        assert (pair.outcome, pair.comparison) == (Outcome.LATE, None)
        assert not any(end.engine_fault for end in to.platform.router.ends)


async def test_one_of_more_than_is_compared_is_stopped_and_no_failure() -> None:
    """A customer's answer of that length is not copied, so that the candidate alone could fail by it."""
    async with shadowed() as to:
        to.script(tokens=60, texts=["x" * 20_000] * 60)
        await to.copied(body(max_tokens=64))
        [pair] = to.platform.pairs.kept
        assert (pair.outcome, pair.comparison, pair.error_code) == (Outcome.LONG, None, None)
        assert to.outcomes() == {"long": 1}
        assert not any(end.engine_fault for end in to.platform.router.ends)
        to.live_engine.control(msgspec.json.encode({"tokens": 60, "texts": ["x" * 20_000] * 60}))
        await to.copied(body(max_tokens=64))
        assert to.outcomes() == {"long": 1}


async def test_one_that_fails_is_noted_with_its_error() -> None:
    async with shadowed() as to:
        to.script(status=500)
        await to.copied()
        [pair] = to.platform.pairs.kept
        assert (pair.outcome, pair.error_code) == (Outcome.FAILED, "engine_failed")


async def test_no_more_run_than_may() -> None:
    async with shadowed(at_once=1) as to:
        to.script(hang=True)
        await to.serve()
        await to.candidate_asked()
        await to.serve()
        assert to.outcomes() == {"limited": 1}
        assert len(to.platform.router.asks) == 3


async def test_one_organization_has_a_quarter_of_them() -> None:
    async with shadowed(per_minute=8) as to:
        for _ in range(6):
            await to.copied()
        assert to.outcomes() == {"compared": 2, "limited": 4}


@pytest.mark.parametrize(
    ("key", "share", "kept"), [(REVIEWED, 1.0, True), (REVIEWED, 0.0, False), (STORING, 1.0, False)]
)
async def test_texts_of_pairs_that_differ_are_kept_of_those_who_allow_it(
    key: KeyRecord, share: float, kept: bool
) -> None:
    async with shadowed(review_share=share) as to:
        await to.copied(key=key)
        to.script(tokens=2, prompt_tokens=7)
        await to.copied(key=key)
        same, different = to.platform.pairs.texts
        assert same is None, "there is nothing to choose"
        assert (different is not None) == kept
        if different is not None:
            assert (different.project_id, different.prompt) == ("project", "user: hi")
            assert different.baseline.startswith(different.candidate)


GARBAGE = st.one_of(
    st.binary(max_size=200),
    st.sampled_from(
        [
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + events
            for events in (
                b"",
                b"data: {}\n\n" * 3,
                b"data: [1]\n\n",
                b"data: {\n\n",
                b': \n\ndata: {"choices":[{"index":0,"delta":{"content":"\\u0000"},"finish_reason":"\\u0000"}]}\n\n',
                b'data: {"choices":[{"index":0,"delta":[]}]}\n\n',
                b'data: {"error":{"message":"no"}}\n\n',
                b'data: {"choices":[],"usage":{"prompt_tokens":99999999999,"completion_tokens":-1}}\n\n',
            )
        ]
        + [b"HTTP/1.1 503 Busy\r\nretry-after: x\r\ncontent-length: 0\r\n\r\n", b"HTTP/1.1 200 OK\r\n"]
    ),
)
ENDINGS = st.sampled_from(["close", "hang", "endless"])


@contextlib.asynccontextmanager
async def raw_candidate(says: bytes, ending: str) -> AsyncIterator[str]:
    """A candidate that says whatever it is told to. Gives its URL."""
    tasks: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(says)
            while ending == "endless":
                writer.write(b": nothing\n\n" * 1_000)
                await writer.drain()
            if ending == "hang":
                await reader.read()
        tasks.discard(task)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    for task in tuple(tasks):
        task.cancel()
    server.close()


def _lasting(client: Client) -> tuple[int, bytes]:
    """What it was sent, without what differs from request to request anyway."""
    answer = client.answer
    body = answer.body.replace(answer.headers["x-request-id"].removeprefix("req_").encode(), b"")
    return answer.status, re.sub(rb'"created":\d+', b"", body)


@examples(nightly=20)
@given(says=GARBAGE, ending=ENDINGS, stream=st.booleans())
def test_whatever_the_candidate_does_the_customer_reads_the_same(says: bytes, ending: str, stream: bool) -> None:
    async def check() -> None:
        async with (
            raw_candidate(says, ending) as url,
            shadowed(gateway={"abort_drain_s": 0.05}, timeout_s=0.1) as to,
        ):
            to.candidate = msgspec.structs.replace(to.candidate, url=url)
            to.platform.router.engines = (to.platform.places[0], to.candidate)
            asked = body(stream=stream)
            plain = await to.serve(asked, model=Model("m", Tier.CHAT, "pool", 4_096))
            copied = await to.serve(asked)
            beside = await to.copied(asked)
            assert _lasting(copied) == _lasting(beside) == _lasting(plain)
            assert plain.answer.status == 200
            assert sum(one.billed for one in to.platform.journal.records) == 3
            asks = {ask.lease_id: ask for ask in to.platform.router.asks}
            copies = [ask for ask in asks.values() if ask.idle_replica]
            assert copies, "there was a copy"
            faults = [end for end in to.platform.router.ends if end.engine_fault]
            assert all(asks[end.lease_id] in copies for end in faults), "no fault is a live replica's"
            assert sum(to.outcomes().values()) == 2, "each is told"
            assert len(to.platform.pairs.kept) <= len(copies)

    in_virtual_time(check)()
