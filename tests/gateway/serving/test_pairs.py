"""A request on a prefill/decode pair: both engines are asked, one is heard, and books close once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from unittest import mock

import msgspec
import pytest
from aiohttp.test_utils import TestServer

from contracts.errors import SlipstreamError
from contracts.lease import Engine
from contracts.usage import Finish
from engines.http.engine_stream import EngineStream
from gateway.limits.cost import Cost
from gateway.serving.attempt import Attempt
from gateway.serving.background import IdleReplicaWork
from gateway.serving.observers import RequestObserver
from gateway.serving.shadow_copies import _had_it
from tests.fakes.pair import PairEngine, Rooms
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import Harness, harness
from tests.virtual_time import in_virtual_time
from tests.waiting import GUARD_S


class Pairs:
    """A harness whose router grants pairs of two prefill engines and two decode engines, in this order."""

    def __init__(self, harness: Harness, prefills: list[PairEngine], decodes: list[PairEngine]) -> None:
        self.harness = harness
        self.prefills = prefills
        self.decodes = decodes

    async def serve(self) -> Client:
        """One request, served to its end, with its books looked at."""
        client = Client()
        await self.harness.serve(client)
        self.harness.require_balanced()
        return client

    @property
    def ends(self) -> list[tuple[Finish, bool, bool]]:
        """Of each lease: how it ended, and whether its decode or its prefill engine was at fault."""
        return [(end.finish, end.engine_fault, end.prefill_fault) for end in self.harness.router.ends]

    def require_replaced(self, client: Client, excluded: str) -> None:
        """The client has one whole answer, of a second pair without this engine."""
        assert client.sent.count(b'"content":"a"') == 4
        assert b"KVTransferError" not in client.sent
        assert self.ends[1] == WELL
        assert self.harness.router.asks[1].excluded_replicas == (excluded,)
        assert [record.billed for record in self.harness.journal.records] == [False, True]
        assert self.harness.limiter.reserved.total() == 1


WELL = (Finish.COMPLETE, False, False)


async def place(stack: AsyncExitStack, engine: PairEngine, role: str, number: int) -> Engine:
    server = await stack.enter_async_context(TestServer(engine.app(role), handler_cancellation=True))
    port = 8_998 if role == "prefill" else 0
    return Engine(f"{role}-{number}", str(server.make_url("")).rstrip("/"), "sglang", "fake", role, port)


@asynccontextmanager
async def pairs() -> AsyncIterator[Pairs]:
    rooms = Rooms()
    prefills, decodes = [[PairEngine(rooms) for _ in range(2)] for _ in range(2)]
    async with AsyncExitStack() as stack, harness() as running:
        running.router.prefills = tuple([await place(stack, one, "prefill", n) for n, one in enumerate(prefills)])
        running.router.engines = tuple([await place(stack, one, "decode", n) for n, one in enumerate(decodes)])
        yield Pairs(running, prefills, decodes)


async def test_both_are_asked_with_one_room_and_the_answer_is_the_decode_engines() -> None:
    async with pairs() as pair:
        await pair.serve()
        (prefill,), (decode,) = pair.prefills[0].asked, pair.decodes[0].asked
        assert prefill == decode
        assert prefill["bootstrap_host"] == "127.0.0.1"
        assert prefill["bootstrap_port"] == 8_998
        assert 0 <= prefill["bootstrap_room"] < 2**63
        (record,) = pair.harness.journal.records
        assert (record.usage.prompt_tokens, record.usage.completion_tokens) == (7, 4)
        assert pair.ends == [WELL]


async def test_a_prefill_engine_that_is_full_is_no_fault_and_another_is_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with pairs() as pair:
        pair.prefills[0].status = 503
        await pair.serve()
        assert "pool prefill: prefill-0 refused request" in caplog.text
        first, second = pair.ends
        assert (first[1:], second[0]) == ((False, False), Finish.COMPLETE)


async def test_a_request_that_all_prefill_engines_refuse_as_full_costs_its_key_nothing_and_is_no_failure() -> None:
    failures: list[bool] = []

    class Watching(RequestObserver):
        def failed(self, attempt: Attempt, error: SlipstreamError) -> None:
            failures.append(_had_it(attempt, error))

    async with pairs() as pair:
        for engine in pair.prefills:
            engine.status = 503
        pair.harness.serving.observers.subscribe(Watching())
        await pair.serve()
        assert failures == [False, False], "a release is judged by failures"
        assert pair.harness.traces.seen[-1][1] == "overloaded"
        assert list(pair.harness.limiter.used.values()) == [(Cost(), True)]


async def test_when_all_prefill_engines_die_the_first_failure_is_told() -> None:
    async with pairs() as pair:
        pair.prefills[0].dies = pair.prefills[1].dies = True
        await pair.serve()
        assert all(end.prefill_fault for end in pair.harness.router.ends)
        assert pair.harness.traces.seen[-1][1] == "engine_failed"


@pytest.mark.parametrize("moment", ["unreachable", "dies", "dies_in_transfer"])
async def test_a_prefill_engine_that_dies_at_any_moment_before_the_first_byte_is_blamed_and_replaced(
    moment: str,
) -> None:
    async with pairs() as pair:
        if moment == "unreachable":
            first_engine, *others = pair.harness.router.prefills
            gone = msgspec.structs.replace(first_engine, url="http://127.0.0.1:1")
            pair.harness.router.prefills = (gone, *others)
        else:
            setattr(pair.prefills[0], moment, True)
        pair.require_replaced(await pair.serve(), "prefill-0")
        assert pair.ends[0][1:] == (False, True)
        if moment == "dies":
            rooms = {one["bootstrap_room"] for engine in pair.prefills for one in engine.asked}
            assert len(rooms) == 2, "a room of its own for each attempt"
            await pair.decodes[0].begun.wait()


@pytest.mark.parametrize(
    ("own_fault", "excluded", "faults"), [(False, "prefill-0", (False, True)), (True, "decode-0", (True, False))]
)
async def test_a_transfer_that_fails_is_the_prefill_engines_fault_unless_the_decode_engine_says_otherwise(
    own_fault: bool, excluded: str, faults: tuple[bool, bool]
) -> None:
    async with pairs() as pair:
        pair.prefills[0].failing_transfers, pair.decodes[0].own_fault = 1, own_fault
        pair.require_replaced(await pair.serve(), excluded)
        assert pair.ends[0] == (Finish.ENGINE_ERROR, *faults)


async def test_a_prefill_engine_that_dies_after_the_first_byte_changes_nothing() -> None:
    async with pairs() as pair:
        prefill, decode = pair.prefills[0], pair.decodes[0]
        prefill.lingers = decode.lingers = True
        client = Client()
        serving = asyncio.create_task(pair.harness.serve(client))
        async with asyncio.timeout(GUARD_S):
            await client.reads(b'"content":"a"')
            prefill.dies_later.set()
            await prefill.dead.wait()
            decode.go_on.set()
            await serving
        pair.harness.require_balanced()
        assert pair.ends == [WELL]
        assert pair.harness.router.ends[0].usage.completion_tokens == 4
        assert not pair.prefills[1].asked


async def test_a_decode_engine_that_dies_after_the_first_byte_ends_the_answer() -> None:
    async with pairs() as pair:
        pair.decodes[0].dies = True
        await pair.serve()
        [end] = pair.ends
        assert end[1:] == (True, False)


@in_virtual_time
async def test_a_client_that_leaves_stops_both() -> None:
    async with pairs() as pair:
        pair.prefills[0].holds = True
        client = Client()
        serving = asyncio.create_task(pair.harness.serve(client))
        await pair.prefills[0].begun.wait()
        await pair.decodes[0].begun.wait()
        client.leave()
        await serving
        async with asyncio.timeout(GUARD_S):
            await pair.prefills[0].left.wait()
            await pair.decodes[0].left.wait()
        pair.harness.require_balanced()
        assert [end.finish for end in pair.harness.router.ends] == [Finish.CLIENT_GONE]


async def test_a_client_that_leaves_as_the_prefill_engine_refuses_pays_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changed = EngineStream.changed
    async with pairs() as pair:
        pair.prefills[0].status = 503
        client = Client()

        def leaves(stream: EngineStream) -> None:
            changed(stream)
            if stream.status == 503:
                client.connection.lost()

        monkeypatch.setattr(EngineStream, "changed", leaves)
        await pair.harness.serve(client)
        pair.harness.require_balanced()
        assert [(each.finish, each.billed) for each in pair.harness.journal.records] == [(Finish.CLIENT_GONE, False)]


async def test_work_on_an_idle_pair_gives_way_to_a_request_on_its_prefill_engine_only() -> None:
    engines = [Engine(f"{role}-{number}", "http://x", "sglang", "m", role) for role in "pd" for number in range(2)]
    prefills, decodes = engines[:2], engines[2:]
    work, never = IdleReplicaWork[str](), asyncio.Event()

    async def run(number: int) -> None:
        work._attempts[decodes[number].replica_id] = mock.Mock(prefill=prefills[number])
        await never.wait()

    for number in range(2):
        work._begin(decodes[number].replica_id, "pool", run(number), "copy")
    first, second = list(work._tasks)
    await asyncio.sleep(0)
    work.placed(mock.Mock(prefill=prefills[0]), Engine("d-9", "http://x", "sglang", "m", "d"))
    await asyncio.sleep(0)
    assert sorted(work._by_replica) == ["d-1"]
    assert {first.cancelled(), second.cancelled()} == {True, False}
    await work.stop()
    assert not work._attempts
