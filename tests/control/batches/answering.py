"""A gateway that answers lines of batches as its script says, with what each used, and remembers what it was asked."""

from __future__ import annotations

import contextlib
import time
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from contracts.dated_request_id import mint
from contracts.generation import Caller, Tier
from contracts.usage import Finish, Outcome, Purpose, Usage
from gateway.auth import delegation
from gateway.metering.journal.records import LINE_CLOSED, Closed, Opened
from tests.serving import serving

PEPPER = b"pepper of the tests"
Answer = Callable[[int], str | Awaitable[str]]


class Refused(Exception):
    """In place of an answer. status: 0: the connection breaks off."""

    def __init__(self, status: int, code: str, **headers: str) -> None:
        self.status, self.code, self.headers = status, code, headers


class Gateway:
    """Use `gateway`. answer: called with the number in a line's prompt; may raise Refused. A line uses as many prompt
    tokens as its number, and one token more with each run, so that no two runs cost the same."""

    def __init__(self, owner: Caller, key_hash: bytes, answer: Answer) -> None:
        self.owner = owner
        self.key_hash = key_hash
        self.answer = answer
        self.asked: Counter[int] = Counter()
        self.given: dict[str, Closed] = {}
        """Runs by request id, delivered or not."""
        self.unknown = 0
        """Refused tokens."""
        self.url = ""

    def _number(self, authorization: str, body: bytes) -> int:
        token = authorization.removeprefix("Bearer ")
        if delegation.key_hash_of(token, PEPPER, time.time()) != self.key_hash:
            self.unknown += 1
            raise Refused(401, "invalid_api_key")
        return int(msgspec.json.decode(body)["messages"][0]["content"])

    async def serve(self, request: web.Request) -> web.Response:
        request_id = mint()
        try:
            number = self._number(request.headers["authorization"], await request.read())
            self.asked[number] += 1
            text = self.answer(number)
            text = text if isinstance(text, str) else await text
        except Refused as refused:
            if not refused.status and request.transport is not None:
                request.transport.close()
            error = {"error": {"message": "refused", "type": "x", "param": None, "code": refused.code}}
            headers = {"x-request-id": request_id, **refused.headers}
            return web.json_response(error, status=refused.status or 500, headers=headers)
        usage = Usage(prompt_tokens=number + 1, completion_tokens=self.asked[number], cached_tokens=1)
        closed = self.given[request_id] = closed_run(self.owner, request_id, usage)
        return web.json_response(
            answer_of(request_id, text, usage),
            headers={"x-request-id": request_id, LINE_CLOSED.decode(): b64encode(msgspec.json.encode(closed)).decode()},
        )


def closed_run(owner: Caller, request_id: str, usage: Usage) -> Closed:
    opened = Opened(
        request_id=request_id,
        attempt=0,
        organization_id=owner.organization_id,
        project_id=owner.project_id,
        key_id=owner.key_id,
        model="chat",
        tier=Tier.CHAT,
        endpoint="/v1/chat/completions",
        stream=False,
        max_tokens=100,
        prompt_tokens_estimate=usage.prompt_tokens,
        opened_at=time.time(),
        purpose=Purpose.BATCHES,
        offline=True,
    )
    return Closed(
        opened=opened,
        outcome=Outcome.EXACT,
        finish=Finish.COMPLETE,
        usage=usage,
        status=200,
        closed_at=time.time(),
        replica_id="one-0",
    )


def answer_of(request_id: str, text: str, usage: Usage) -> dict[str, Any]:
    return {
        "id": request_id,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens},
    }


@contextlib.asynccontextmanager
async def gateway(
    owner: Caller, key_hash: bytes, answer: Callable[[int], str | Awaitable[str]]
) -> AsyncIterator[Gateway]:
    served = Gateway(owner, key_hash, answer)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", served.serve)
    async with serving(app) as served.url:
        yield served
