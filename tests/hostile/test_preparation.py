"""What is done for a request before anything is reserved ends when its client leaves, and at its deadline."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import aiohttp
import msgspec
import pytest

from contracts.errors import RateLimited
from gateway.http.loop_shares import REFUSAL_S, UNSERVED_BURST_S, UNSERVED_SHARE, LoopShares
from gateway.http.response import ResponseWriter
from gateway.serving.request import InferenceRequest
from gateway.wire.config import RequestConfig
from gateway.wire.openai.format import ChatFormat
from gateway.wire.openai.schema import ChatRequest
from gateway.wire.prepared import Prepared
from tests.gateway.serving.doors import BODY, KEY, Doors, serving
from tests.waiting import GUARD_S, eventually


class Endless(ChatFormat):
    """A preparation that waits for what never comes: `gateway.wire.chat_prompt` behind a tokenizer that has died."""

    def __init__(self) -> None:
        super().__init__(RequestConfig())
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()

    async def prepare(self, asked: ChatRequest, *more: Any) -> Prepared:
        self.begun.set()
        try:
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]
        finally:
            self.ended.set()


def alive() -> int:
    """Decoded requests in memory."""
    gc.collect()
    return sum(1 for thing in gc.get_objects() if type(thing) is ChatRequest)


async def test_a_client_that_leaves_takes_its_request_along() -> None:
    endless, doors, before = Endless(), Doors(), alive()
    async with serving(endless, doors, 3_600) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST / HTTP/1.1\r\nhost: x\r\nauthorization: Bearer k\r\ncontent-length: {len(BODY)}\r\n\r\n"
        writer.write(head.encode() + BODY)
        await endless.begun.wait()
        assert alive() == before + 1
        writer.close()
        await endless.ended.wait()
        await eventually(lambda: doors.answered("client_gone") >= 1)
        assert alive() == before
        assert doors.refusals == []


async def test_a_preparation_without_end_is_refused_at_its_deadline() -> None:
    endless, doors, before = Endless(), Doors(), alive()
    async with serving(endless, doors, 0.05) as port, aiohttp.ClientSession() as session:
        headers = {"authorization": "Bearer k"}
        # small: the deadline of a large one may come while it waits for its organization's turn to be decoded
        body = msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": "x"}]})
        async with session.post(f"http://127.0.0.1:{port}/", data=body, headers=headers) as r:
            error = msgspec.json.decode(await r.read())["error"]
            assert (r.status, error["code"], r.headers["retry-after"]) == (503, "preparation_timeout", "1")
        assert endless.ended.is_set()
        (refusal,) = doors.refusals
        assert refusal.caller == KEY.caller
        doors.refusals.clear()
        del refusal
        assert alive() == before


@pytest.mark.parametrize("bad", [0, -1, 3_601])
def test_the_deadline_has_a_range(bad: float) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"prepare_timeout_s": bad}, RequestConfig)


async def test_refusals_without_a_key_are_paced_by_network_and_customers_are_not() -> None:
    doors, shares = Doors(), LoopShares()
    shares.strangers.spend("127.0.0.1", 3_600)
    async with serving(Endless(), doors, 0.05, shares) as port, aiohttp.ClientSession() as session:
        url, customer = f"http://127.0.0.1:{port}/", {"authorization": "Bearer k"}
        stranger = asyncio.create_task(session.post(url, data=b"{}"))
        async with session.post(url, data=BODY, headers=customer) as response:
            assert response.status == 503, "its preparation was ended by the deadline: it came that far"
        assert not stranger.done()
        stranger.cancel()
        await asyncio.gather(stranger, return_exceptions=True)


async def test_refusals_of_a_scope_are_paced_by_organization() -> None:
    """Fault: the refusals waited for no turn, and delayed keys with the scope."""
    doors, shares = Doors(), LoopShares()
    doors.key = msgspec.structs.replace(KEY, scopes=frozenset())
    shares.spend(KEY.caller.organization_id, 3_600)
    async with serving(Endless(), doors, 0.05, shares) as port, aiohttp.ClientSession() as session:
        url, headers = f"http://127.0.0.1:{port}/", {"authorization": "Bearer k"}
        refused = [asyncio.create_task(session.post(url, data=b"{}", headers=headers)) for _ in range(20)]
        await eventually(lambda: doors.asked == len(refused))
        assert doors.refusals == []
        assert not any(each.done() for each in refused)
        for each in refused:
            each.cancel()
        await asyncio.gather(*refused, return_exceptions=True)
        await eventually(lambda: doors.answered("client_gone") == len(refused))
    shares.spend(KEY.caller.organization_id, -3_600)
    assert shares.free(KEY.caller.organization_id), "nobody heard of the refusals, and nobody is charged"


class Refusing:
    """A pipeline that refuses every request, or serves all."""

    def __init__(self) -> None:
        self.refuses = True
        self.asked = 0

    async def run(self, request: InferenceRequest, connection: object, response: ResponseWriter, wait: object) -> None:
        self.asked += 1
        request.ran = not self.refuses
        if self.refuses:
            response.fail(RateLimited("Limit reached."))
        else:
            response.whole(200, b"{}")


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


async def test_requests_that_limits_refuse_are_paced_by_organization() -> None:
    """Fault: each refusal costs half a millisecond of the loop, and one organization had no limit."""
    doors, clock = Doors(), Clock()
    doors.pipeline = pipeline = Refusing()
    shares, organization_id = LoopShares(clock), KEY.caller.organization_id
    body = msgspec.json.encode({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]})
    async with (
        serving(ChatFormat(RequestConfig()), doors, 3_600, shares) as port,
        aiohttp.ClientSession() as session,
    ):

        async def ask() -> int:
            headers = {"authorization": "Bearer k"}
            async with session.post(f"http://127.0.0.1:{port}/", data=body, headers=headers) as response:
                await response.read()
                return response.status

        shares.unserved.spend(organization_id, UNSERVED_BURST_S - 1.5 * REFUSAL_S)
        assert [await ask() for _ in range(2)] == [429, 429]
        waiting = [asyncio.create_task(ask()) for _ in range(8)]
        await eventually(lambda: doors.asked == 10)
        assert pipeline.asked == 2
        pipeline.refuses = False
        clock.now_s += 3 * REFUSAL_S / UNSERVED_SHARE  # for one refusal after another, and those that run cost none
        assert await asyncio.gather(*waiting) == [200] * 8
        assert [await ask() for _ in range(50)] == [200] * 50


async def test_slow_uploads_without_a_length_leave_their_organization_its_room() -> None:
    """Fault: each counted as the largest possible body, and eight delayed all large bodies of the organization."""
    doors = Doors()
    async with serving(Endless(), doors, 0.05) as port, aiohttp.ClientSession() as session:
        go_on, begun = asyncio.Event(), asyncio.Semaphore(0)

        async def slow() -> Any:
            yield b" " * 20_000
            begun.release()
            await go_on.wait()

        url, headers = f"http://127.0.0.1:{port}/", {"authorization": "Bearer k"}
        uploads = [asyncio.create_task(session.post(url, data=slow(), headers=headers)) for _ in range(9)]
        for _ in uploads:
            await begun.acquire()
        async with asyncio.timeout(GUARD_S), session.post(url, data=BODY, headers=headers) as response:
            assert response.status == 503, "its preparation was ended by the deadline: it came that far"
        go_on.set()
        for answer in await asyncio.gather(*uploads):
            assert answer.status in (400, 503), "blanks are no JSON; on a busy machine the deadline comes first"
