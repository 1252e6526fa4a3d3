"""What `trtllm-serve disaggregated` does on the wire, in either of its two generations: it asks a context server for a
prompt, then a generation server for the answer, and passes that one's bytes on.

The second table of tests/fakes/tensorrt_llm.md has every behaviour and the place where it was read.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from tests.fakes.tensorrt_llm import KNOWN, MAX_BODY_BYTES, NEWER, VERSIONS, Altered, Generation, altering

GENERATED = ("length", "not_finished")
"""Reasons for which a context server's answer is not the whole answer."""
RACES = (aiohttp.ServerDisconnectedError, ConnectionResetError)
RETRIES = 1
RACE_RETRIES = 5
COUNTERS = ("total_requests", "stream_requests", "nonstream_requests", "validation_exceptions", "internal_errors")


class _Broken(Exception):
    """What the front says of itself, with 500."""


class FakeFront:
    """One front. contexts, generations: URLs of its servers, asked in turn. retry_s: before it asks the same server
    again; a second for the real one."""

    def __init__(
        self, generation: Generation, contexts: Sequence[str], generations: Sequence[str], *, retry_s: float = 0.01
    ) -> None:
        self.generation = generation
        self.ready = True
        """Whether its cluster has the least number of servers; without a cluster it always says yes."""
        self.altered: Altered | None = None
        """Changes answers, but those of streams: a front that differs."""
        self.rewritten: Callable[[bytes], bytes] | None = None
        """Changes a generation server's bytes, all together."""
        self.asked: list[dict[str, Any]] = []
        self.retried = 0
        self._contexts = itertools.cycle(contexts)
        self._generations = itertools.cycle(generations)
        self._retry_s = retry_s
        self._ids = itertools.count(1)
        self._counts = dict.fromkeys(COUNTERS, 0)
        self._session: aiohttp.ClientSession | None = None

    def app(self) -> web.Application:
        """Its routes: neither /metrics nor /v1/models is one, in either generation."""
        app = web.Application(middlewares=[altering(self)], client_max_size=MAX_BODY_BYTES)
        app.cleanup_ctx.append(self._connected)
        app.router.add_get("/health", self._health)
        app.router.add_get("/version", self._version)
        app.router.add_get("/cluster_info", self._cluster_info)
        app.router.add_get("/perf_metrics", self._perf_metrics)
        if self.generation == "1.4":
            app.router.add_get("/prometheus/metrics", self._page)
        for path in KNOWN:
            app.router.add_post(path, self._answer)
        return app

    async def _connected(self, app: web.Application) -> AsyncIterator[None]:
        async with aiohttp.ClientSession() as self._session:
            yield

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if self.ready else 503 if self.generation == "1.4" else 500)

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": VERSIONS[self.generation]})

    async def _cluster_info(self, request: web.Request) -> web.Response:
        return web.json_response({"is_ready": self.ready} if self.generation == "1.4" else {})

    async def _perf_metrics(self, request: web.Request) -> web.Response:
        return web.json_response([])

    async def _page(self, request: web.Request) -> web.Response:
        return web.Response(text="".join(f"{name} {float(count)}\n" for name, count in self._counts.items()))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = msgspec.json.decode(await request.read())
        self.asked.append(body)
        known = KNOWN[request.path] | (NEWER[request.path] if self.generation == "1.4" else set())
        if unknown := sorted(body.keys() - known):
            self._counts["validation_exceptions"] += 1
            said = f"1 validation error: {{'type': 'extra_forbidden', 'loc': ('body', '{unknown[0]}')}}"
            return web.json_response({"error": said}, status=400)
        self._counts["total_requests"] += 1
        self._counts["stream_requests" if body.get("stream") else "nonstream_requests"] += 1
        try:
            self._require_ready()
            prefilled = await self._prefilled(request.path, body)
            choice = prefilled["choices"][0]
            if choice["finish_reason"] not in GENERATED:
                return await self._ended_at_once(request, prefilled, streamed=bool(body.get("stream")))
            handed = choice["disaggregated_params"] | {"request_type": "generation_only"}
            ids = prefilled["prompt_token_ids"]
            prompt = {"prompt": ids} if request.path == "/v1/completions" else {"prompt_token_ids": ids}
            asked = body | prompt | {"disaggregated_params": handed}
            if body.get("stream"):
                return await self._passed_on(request, asked)
            return web.json_response(await self._posted(next(self._generations), request.path, asked))
        except _Broken as broken:
            if self.generation == "1.2" and not self.ready:
                return web.json_response({"detail": str(broken)}, status=400)
            self._counts["internal_errors"] += 1
            return web.json_response({"detail": f"Internal server error {broken}".strip()}, status=500)

    def _require_ready(self) -> None:
        if not self.ready:
            raise _Broken("Cluster is not ready")

    async def _prefilled(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """What a context server says of the prompt; it writes one token of the answer, which nobody is sent yet."""
        disaggregated = {"request_type": "context_only"}
        if self.generation == "1.4":
            disaggregated["disagg_request_id"] = str(next(self._ids))
        asked = {key: value for key, value in body.items() if key not in ("stream", "stream_options")}
        answer = await self._posted(
            next(self._contexts), path, asked | {"stream": False, "disaggregated_params": disaggregated}
        )
        if len(answer["choices"]) != 1:
            raise _Broken(
                "Disagg server returned more than one choice. This is currently not supported in disaggregated server."
                if self.generation == "1.2"
                else f"Context server returned {len(answer['choices'])} choices, expecting 1."
            )
        return answer

    async def _posted(self, url: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """An answer that is not streamed, of the same server however often it is asked."""
        assert self._session is not None
        for attempt in itertools.count():
            try:
                async with self._session.post(url + path, json=body) as answer:
                    if answer.status >= 400:
                        words = f"{answer.reason}: {(await answer.text())[:2048]}"
                        raise aiohttp.ClientResponseError(
                            answer.request_info, answer.history, status=answer.status, message=words
                        )
                    decoded = await answer.json()
            except (aiohttp.ClientError, OSError) as error:
                if attempt >= self._most(error):
                    raise _Broken(str(error) if self.generation == "1.4" else "") from None
                self.retried += 1
                await asyncio.sleep(self._retry_s)
                continue
            if decoded is None:
                raise _Broken("ChatCompletionResponse() argument after ** must be a mapping, not NoneType")
            assert isinstance(decoded, dict)
            return decoded
        raise AssertionError

    def _most(self, error: Exception) -> int:
        """How often it asks again after this."""
        if self.generation == "1.2":
            return RETRIES
        if isinstance(error, aiohttp.ClientResponseError) and error.status < 500:
            return 0
        return RACE_RETRIES if isinstance(error, RACES) else RETRIES

    async def _ended_at_once(
        self, request: web.Request, prefilled: dict[str, Any], *, streamed: bool
    ) -> web.StreamResponse:
        """The first token ended the answer: a stream is told that it is over, and nothing else."""
        if not streamed:
            prefilled["choices"][0].pop("disaggregated_params")
            return web.json_response(prefilled)
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    async def _passed_on(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        """A generation server's bytes. The head is sent before that server is asked: what goes wrong there breaks the
        answer off, with 200 and without an event."""
        assert self._session is not None
        assert request.transport is not None
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        try:
            async with self._session.post(next(self._generations) + request.path, json=body) as answer:
                if "text/event-stream" not in answer.headers.get("content-type", ""):
                    raise aiohttp.ClientPayloadError("Response is not streaming")
                reading = asyncio.create_task(self._copied(answer, response))
                leaving = asyncio.create_task(_gone(request))
                try:
                    await asyncio.wait({reading, leaving}, return_when=asyncio.FIRST_COMPLETED)
                    if reading.done():
                        reading.result()
                finally:
                    reading.cancel()
                    leaving.cancel()
        except (aiohttp.ClientError, OSError):
            request.transport.abort()
        return response

    async def _copied(self, answer: aiohttp.ClientResponse, response: web.StreamResponse) -> None:
        if self.rewritten is not None:
            await response.write(self.rewritten(await answer.read()))
        async for some in answer.content.iter_any():
            await response.write(some)
        await response.write_eof()


async def _gone(request: web.Request) -> None:
    """Return once the client's connection is closed; it is told at once, and closes the generation server's."""
    while request.transport is not None and not request.transport.is_closing():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def fake_front(
    generation: Generation, contexts: Sequence[str], generations: Sequence[str]
) -> AsyncIterator[tuple[FakeFront, str]]:
    """A running front, and its URL."""
    front = FakeFront(generation, contexts, generations)
    runner = web.AppRunner(front.app(), access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield front, f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
