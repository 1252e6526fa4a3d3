"""SGLang's two roles on the wire: a decode engine answers once a prefill engine has given it what it computed for the
same room (`disaggregation/decode.py`: it polls its receiver). Where that failed (`KVPoll.Failed`) a streamed answer has
the status 200 all the same, and an error event with the code 500 in it (`openai/serving_chat.py`).
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from aiohttp import web

NOT_SENT, OWN_FAULT = (
    "Decode transfer failed for request rank=0 decode_req.req.rid='r' decode_req.req.bootstrap_room=7 with exception "
    f"KVTransferError(bootstrap_room=7): {reason}"
    for reason in ("Failed to get kvcache from prefill instance, it might be dead", "HiCache restore failed")
)


class Rooms:
    """Where the engines of a test meet."""

    def __init__(self) -> None:
        self._rooms: dict[int, asyncio.Event] = {}
        self.failed: set[int] = set()
        """Rooms in which nothing came over, though they are done."""

    def room(self, number: int) -> asyncio.Event:
        """Set once its prefill is done."""
        return self._rooms.setdefault(number, asyncio.Event())


class PairEngine:
    """One engine of either role. `asked` keeps what came; `left` is set when a caller leaves early."""

    def __init__(self, rooms: Rooms, tokens: int = 4) -> None:
        self.rooms = rooms
        self.tokens = tokens
        self.asked: list[dict[str, Any]] = []
        self.begun = asyncio.Event()
        self.left = asyncio.Event()
        self.status = 200
        self.dies = False
        """Before it has computed anything."""
        self.dies_later = asyncio.Event()
        """Of a prefill engine that `lingers`: now it dies."""
        self.dead = asyncio.Event()
        self.lingers = False
        """Having computed its part it does not end its answer; a decode engine waits between its tokens for `go_on`."""
        self.go_on = asyncio.Event()
        self.failing_transfers = 0
        """Of so many requests what it computes does not reach the decode engine."""
        self.holds = False
        """It never gets so far."""
        self.dies_in_transfer = False
        """Of a prefill engine: having begun to answer, and handed nothing over."""
        self.own_fault = False
        """Of a decode engine: what fails of a transfer is its own doing."""

    async def prefill(self, request: web.Request) -> web.StreamResponse:
        """One token, when the room has been filled."""
        fields = await self._asked(request)
        if self.dies:
            assert request.transport is not None
            request.transport.abort()
            await self._until_left()
        if self.status != 200:
            return web.json_response({"message": "no"}, status=self.status)
        if self.holds:
            await self._until_left()
        if self.dies_in_transfer:
            response = await self._begin(request)
            self.rooms.failed.add(fields["bootstrap_room"])
            assert request.transport is not None
            request.transport.abort()
            self.rooms.room(fields["bootstrap_room"]).set()
            return response
        failing, self.failing_transfers = self.failing_transfers > 0, max(self.failing_transfers - 1, 0)
        if failing:
            self.rooms.failed.add(fields["bootstrap_room"])
        self.rooms.room(fields["bootstrap_room"]).set()
        if self.lingers:
            response = await self._begin(request)
            await self.dies_later.wait()
            assert request.transport is not None
            request.transport.abort()
            self.dead.set()
            return response
        if failing:
            return await self._failed(request, "Prefill transfer failed for request rank=0")
        return await self._stream(request, 1)

    async def decode(self, request: web.Request) -> web.StreamResponse:
        """All tokens, once the room is filled."""
        fields = await self._asked(request)
        try:
            await self.rooms.room(fields["bootstrap_room"]).wait()
        except asyncio.CancelledError:
            self.left.set()
            raise
        if fields["bootstrap_room"] in self.rooms.failed:
            return await self._failed(request, OWN_FAULT if self.own_fault else NOT_SENT)
        return await self._stream(request, self.tokens, breaks=self.dies)

    async def abort(self, request: web.Request) -> web.Response:
        """Nothing to do: the connection is closed, too."""
        return web.Response()

    def app(self, role: str) -> web.Application:
        """role: `prefill` or `decode`."""
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self.prefill if role == "prefill" else self.decode)
        app.router.add_post("/abort_request", self.abort)
        return app

    async def _asked(self, request: web.Request) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.json.decode(await request.read())
        self.asked.append(fields)
        self.begun.set()
        return fields

    async def _until_left(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.left.set()

    async def _stream(self, request: web.Request, tokens: int, *, breaks: bool = False) -> web.StreamResponse:
        response = await self._begin(request)
        for number in range(tokens):
            usage = {"prompt_tokens": 7, "completion_tokens": number + 1, "total_tokens": 8 + number}
            last = number == tokens - 1
            choice = {"index": 0, "delta": {"content": "a"}, "finish_reason": "length" if last else None}
            await self._event(response, {"choices": [choice], "usage": usage})
            if self.lingers and number == 0:
                await self.go_on.wait()
            if breaks:
                assert request.transport is not None
                request.transport.abort()
                return response
        usage = {"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 7 + tokens}
        await self._event(response, {"choices": [], "usage": usage})
        await response.write(b"data: [DONE]\n\n")
        return response

    async def _failed(self, request: web.Request, said: str) -> web.StreamResponse:
        response = await self._begin(request)
        error = {
            "object": "error", "message": said, "type": "INTERNAL_SERVER_ERROR", "param": None,
            "code": 500,
        }  # fmt: skip
        await response.write(b"data: " + msgspec.json.encode({"error": error}) + b"\n\ndata: [DONE]\n\n")
        return response

    async def _begin(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        return response

    async def _event(self, response: web.StreamResponse, fields: dict[str, Any]) -> None:
        chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "fake", **fields}
        await response.write(b"data: " + msgspec.json.encode(chunk) + b"\n\n")
