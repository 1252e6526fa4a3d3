"""What `trtllm-serve` does on the wire, in either of its two generations, without a model: tokens are ` t0 t1 t2…`.

The table of tests/fakes/tensorrt_llm.md has every behaviour and the place where it was read; behaviour that no
client of ours can meet is left out. infra/verify/tensorrt_llm.sh asks a real server for what one shows that works.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Literal, Protocol

import msgspec
from aiohttp import web

from tests.fakes.waiting_queue import WaitingQueue

Generation = Literal["1.2", "1.4"]
VERSIONS = {"1.2": "1.2.1", "1.4": "1.4.0rc1"}
SAMPLING = {
    "model", "frequency_penalty", "logit_bias", "logprobs", "max_tokens", "n", "presence_penalty", "seed", "stop",
    "stream", "stream_options", "temperature", "top_p", "user", "lora_request", "best_of", "use_beam_search", "top_k",
    "top_p_min", "min_p", "repetition_penalty", "length_penalty", "early_stopping", "stop_token_ids",
    "include_stop_str_in_output", "ignore_eos", "min_tokens", "skip_special_tokens", "spaces_between_special_tokens",
    "truncate_prompt_tokens", "echo", "add_special_tokens", "response_format", "disaggregated_params",
}  # fmt: skip
KNOWN: dict[str, set[str]] = {
    "/v1/chat/completions": SAMPLING | {
        "messages", "prompt_token_ids", "max_completion_tokens", "top_logprobs", "tools", "tool_choice",
        "reasoning_effort", "add_generation_prompt", "documents", "chat_template", "chat_template_kwargs", "cache_salt",
    },
    "/v1/completions": SAMPLING | {
        "prompt", "suffix", "prompt_ignore_length", "return_context_logits", "detokenize",
    },
}  # fmt: skip
NEWER: dict[str, set[str]] = {
    "/v1/chat/completions": {"priority", "conversation_params", "agent_hierarchy", "parallel_tool_calls", "thinking"},
    "/v1/completions": {"priority", "conversation_params", "thinking_token_budget"},
}
TOKENS_PER_BLOCK = 32
BLOCKS = 1_000
MAX_BATCH = 64
WINDOW = BLOCKS * TOKENS_PER_BLOCK
"""Tokens of a prompt and its answer; the memory holds one of that length."""
DONE = b"data: [DONE]\n\n"
FIGURES = b'event: trtllm.perf_metrics\ndata: {"Server-Timing": "server_ttft;dur=1.0"}\n\n'
MAX_BODY_BYTES = 1 << 24
CACHED_BYTES = 1_000
"""A prompt shorter than that fills no block."""
PER_REQUEST = ("e2e_request_latency", "time_to_first_token", "time_per_output_token", "request_queue_time")
"""Histograms of 1.2, in seconds."""
MIDDLE_PRIORITY = 0.5
Altered = Callable[[web.Request, web.StreamResponse], Awaitable[web.StreamResponse]]


class Alterable(Protocol):
    """A server of ours that can be made to differ."""

    altered: Altered | None


def altering(server: Alterable) -> Any:
    """The middleware of a server by which its `altered` changes answers."""

    @web.middleware
    async def middleware(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            answer = await handler(request)
        except web.HTTPNotFound:
            answer = web.json_response({"detail": "Not Found"}, status=404)
        return answer if server.altered is None else await server.altered(request, answer)

    return middleware


class Script(msgspec.Struct):
    """What the next requests meet."""

    tokens: int = 4
    """Of an answer, where max_tokens allows it."""
    token_s: float = 0.0
    """Between two tokens."""
    held: bool = False
    """Tokens come only as `FakeTensorRTLLM.go_on` is called."""
    prompt_tokens: int = 7
    cached_tokens: int = 0
    fail_after: int | None = None
    """Tokens after which the executor fails in mid-stream; None: it does not."""
    internal_error: str = ""
    """What is answered in place of a stream: an exception of the server's own."""
    hangs_up: int = 0
    """So many requests more find their connection closed before anything is answered."""
    first_token_ends: bool = False
    """Of a context server: the answer is over with the token that it writes."""
    executor_dies: bool = False
    """HTTP 200 with the body `null`, then the process is gone: it sends itself SIGINT."""


class Asked(msgspec.Struct):
    """What the server saw of one request."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str]
    tokens: int = 0
    aborted: bool = False
    ended: asyncio.Event = msgspec.field(default_factory=asyncio.Event)


class FakeTensorRTLLM:
    """One server. disconnect_poll_s: how often it looks whether a client has gone; a second for the real one.

    silence_s: without an iteration, for which 1.2's `/metrics` waits; two for the real one.
    """

    def __init__(
        self,
        generation: Generation,
        *,
        disconnect_poll_s: float = 1.0,
        silence_s: float = 2.0,
        max_batch: int = MAX_BATCH,
    ) -> None:
        self.generation = generation
        self.script = Script()
        self.asked: list[Asked] = []
        self.drained = 0
        """Answers of `/metrics` that told of iterations."""
        self.healthy = True
        """Whether its executor lives; without it `/health` is 503 until the process has ended."""
        self.died = asyncio.Event()
        self.altered: Altered | None = None
        """Changes answers, but those of streams: a server that differs."""
        self.done, self.figures = DONE, FIGURES if generation == "1.4" else b""
        """What ends a stream, and what comes behind it for whoever asks."""
        self.queue = WaitingQueue(max_batch, WINDOW)
        self._poll_s = disconnect_poll_s
        self._silence_s = silence_s
        self._max_batch = max_batch
        self._iterations: list[dict[str, Any]] = []
        self._unread: list[dict[str, Any]] = []
        """Iterations that the server's own collector, which 1.4 has beside `return_perf_metrics`, has not read yet: it
        does when a request ends."""
        self._told_all = True
        """No request has come since `/metrics` was answered: 1.2 then answers at once."""
        self._iterated_one = asyncio.Event()
        self._steps = asyncio.Semaphore(0)
        self._prefixes: set[tuple[str, bytes]] = set()
        """Prompts that have been read, each with the salt it was read under."""
        self._totals = dict.fromkeys(("prompt", "cached", "generated"), 0)

    @property
    def untold(self) -> int:
        """Iterations that nobody has been told of."""
        return len(self._iterations) + len(self._unread)

    def go_on(self, tokens: int = 1) -> None:
        """Let answers that are held go on by so many tokens, all together."""
        for _ in range(tokens):
            self._steps.release()

    def app(self) -> web.Application:
        """Its routes. The other generation's answer 404, as any unknown path does."""
        app = web.Application(middlewares=[altering(self)], client_max_size=MAX_BODY_BYTES)
        app.router.add_get("/health", self._health)
        app.router.add_get("/version", self._version)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/metrics", self._drain_iterations)
        app.router.add_get("/prometheus/metrics", self._page)
        for path in KNOWN:
            app.router.add_post(path, self._generate)
        if self.generation == "1.4":
            app.router.add_get("/server_info", self._server_info)
        else:
            app.router.add_get("/perf_metrics", self._drain_nothing)
        return app

    async def _health(self, request: web.Request) -> web.Response:
        if self.healthy:
            return web.Response()
        return web.Response(status=503, text="LLM is unavailable. Please check the server logs for more details.")

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": VERSIONS[self.generation]})

    async def _models(self, request: web.Request) -> web.Response:
        model = {"id": "llama-70b", "object": "model", "created": 1, "owned_by": "tensorrt_llm"}
        return web.json_response({"object": "list", "data": [model]})

    async def _server_info(self, request: web.Request) -> web.Response:
        return web.json_response(
            {"disaggregated_params": None, "max_batch_size": self._max_batch, "tokens_per_block": TOKENS_PER_BLOCK}
        )

    async def _drain_nothing(self, request: web.Request) -> web.Response:
        return web.json_response([])

    async def _drain_iterations(self, request: web.Request) -> web.Response:
        """What one reader takes, no other finds. 1.2 goes on reading until nothing has come for a while."""
        if self.generation == "1.2" and not self._told_all:
            self._told_all = True
            with contextlib.suppress(TimeoutError):
                while True:
                    self._iterated_one.clear()
                    await asyncio.wait_for(self._iterated_one.wait(), self._silence_s)
        drained, self._iterations = self._iterations, []
        self.drained += bool(drained)
        return web.json_response(drained)

    async def _page(self, request: web.Request) -> web.Response:
        if self.generation == "1.2":
            labels, asked = 'engine_type="undefined",model_name="undefined"', float(len(self.asked))
            page = f'request_success_total{{finished_reason="stop",{labels}}} {asked}\n'
            for name in PER_REQUEST:
                page += (
                    f'{name}_seconds_bucket{{le="+Inf",{labels}}} {asked}\n{name}_seconds_count{{{labels}}} {asked}\n'
                )
            return web.Response(text=page)
        labels = '{engine_type="pytorch",model_name="llama-70b"}'
        names = {
            "prompt_tokens_total": "prompt", "generation_tokens_total": "generated",
            "prompt_cached_tokens_total": "cached",
        }  # fmt: skip
        return web.Response(
            text="".join(f"trtllm_{name}{labels} {float(self._totals[of])}\n" for name, of in names.items())
        )

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = msgspec.json.decode(await request.read())
        headers = {name.lower(): value for name, value in request.headers.items()}
        asked = Asked(request.path, body, headers)
        self.asked.append(asked)
        try:
            if (refusal := self._refusal(request.path, body)) is not None:
                return refusal
            script = self.script
            if script.internal_error:
                return _flat(script.internal_error)
            if script.executor_dies:
                return await self._die(request)
            if script.hangs_up:
                script.hangs_up -= 1
                return self._break_off(request, web.Response())
            if self._reads_again(body):
                script = msgspec.structs.replace(script, cached_tokens=script.prompt_tokens - 1)
            self._told_all = False
            if _is_prefill(body):
                return self._prefilled(asked, script)
            return await self._answer(request, asked, script)
        finally:
            self._iterations += self._unread
            self._unread.clear()
            asked.ended.set()

    async def _die(self, request: web.Request) -> web.StreamResponse:
        """The request is told nothing, with 200; then the process ends."""
        self.healthy = False
        response = web.Response(body=b"null", content_type="application/json")
        await response.prepare(request)
        await response.write_eof()
        self.died.set()
        return response

    def _break_off(self, request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
        """Neither an event nor `[DONE]`."""
        assert request.transport is not None
        request.transport.abort()
        return response

    def _reads_again(self, body: dict[str, Any]) -> bool:
        """Whether a prompt of some length was read before under the same salt."""
        prompt = msgspec.json.encode(body.get("messages") or body.get("prompt"))
        key = (body.get("cache_salt") or "", prompt)
        known = key in self._prefixes
        if len(prompt) > CACHED_BYTES:
            self._prefixes.add(key)
        return known

    def _prefilled(self, asked: Asked, script: Script) -> web.Response:
        """What a generation server needs of a prompt."""
        if (prompt := _words(asked.body)) >= WINDOW:
            return _flat(_too_long(prompt))
        asked.tokens = 1
        self._iterated()
        handed = asked.body["disaggregated_params"] | {
            "ctx_request_id": len(self.asked), "first_gen_tokens": [0], "encoded_opaque_state": "b3BhcXVl"
        }  # fmt: skip
        ended = "stop" if script.first_token_ends else "length" if asked.body.get("max_tokens") == 1 else "not_finished"
        text = {"message": {"role": "assistant", "content": " t0"}} if "messages" in asked.body else {"text": " t0"}
        choices = [
            {"index": index, **text, "finish_reason": ended, "disaggregated_params": handed}
            for index in range(asked.body.get("n") or 1)
        ]
        usage = Chunks(self.generation, asked.body, script, chat=True).usage_of(1)
        ids = list(range(script.prompt_tokens))
        return web.json_response({"id": "chatcmpl-1", "choices": choices, "usage": usage, "prompt_token_ids": ids})

    def _refusal(self, path: str, body: dict[str, Any]) -> web.Response | None:
        known = KNOWN[path] | (NEWER[path] if self.generation == "1.4" else set())
        unknown = sorted(body.keys() - known)
        if unknown:
            said = f"1 validation error: {{'type': 'extra_forbidden', 'loc': ('body', '{unknown[0]}')}}"
            return _flat(said) if self.generation == "1.2" else web.json_response({"error": said}, status=400)
        if body.get("suffix") is not None:
            return _flat("suffix is not supported")
        if body.get("tool_choice") == "required":
            return _flat("tool_choice 'required' is not supported")
        if not body.get("stream") and body.get("stream_options") is not None:
            return _flat("stream_options must be None when stream is False")
        priority = body.get("priority")
        if priority is not None and not 0 <= priority <= 1:
            return _flat("priority must be between 0 and 1")
        return None

    async def _answer(self, request: web.Request, asked: Asked, script: Script) -> web.StreamResponse:
        """The head of a stream is sent before anything is known of the answer."""
        body, streamed = asked.body, bool(asked.body.get("stream"))
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        if streamed:
            await response.prepare(request)
        if (prompt := _words(body)) >= WINDOW:
            return self._break_off(request, response) if streamed else _flat(_too_long(prompt))
        room = WINDOW - script.prompt_tokens
        # too much is cut, not refused
        most = min(body.get("max_tokens") or body.get("max_completion_tokens") or room, room)
        leaving = asyncio.create_task(self._gone(request))
        try:
            # GUARANTEED_NO_EVICT: memory for all that may come, which without max_tokens is the whole window
            needed = script.prompt_tokens + most
            async with self.queue.place(body.get("priority", MIDDLE_PRIORITY), needed, leaving) as placed:
                if not placed:
                    asked.aborted = True
                    return response
                return await self._run(request, response, asked, script, most, leaving)
        finally:
            leaving.cancel()
            self._iterated()

    async def _run(
        self,
        request: web.Request,
        response: web.StreamResponse,
        asked: Asked,
        script: Script,
        most: int,
        leaving: asyncio.Task[None],
    ) -> web.StreamResponse:
        chat, body = request.path.endswith("chat/completions"), asked.body
        tokens, choices, streamed = min(script.tokens, most), body.get("n") or 1, bool(body.get("stream"))
        writer = Chunks(self.generation, body, script, chat)
        self._totals["prompt"] += script.prompt_tokens
        self._totals["cached"] += script.cached_tokens
        for index in range(tokens):
            if not await self._step(script, leaving):
                asked.aborted = True
                return response
            if script.fail_after == index:
                return await self._fail(request, response, chat=chat)
            asked.tokens += choices
            self._totals["generated"] += choices
            self._iterated()
            last = "length" if tokens == most else "stop"
            for choice in range(choices if streamed else 0):
                if chat and index == 0:
                    await _write(response, writer.role(choice))
                await _write(response, writer.token(choice, index, last if index + 1 == tokens else None))
        if not streamed:
            return web.json_response(writer.whole(tokens, asked.tokens))
        if (body.get("stream_options") or {}).get("include_usage"):
            await _write(response, writer.usage(asked.tokens))
        await _write(
            response, self.done + (self.figures if asked.headers.get("x-trtllm-return-metrics") == "1" else b"")
        )
        with contextlib.suppress(ConnectionError):
            await response.write_eof()
        return response

    async def _step(self, script: Script, leaving: asyncio.Task[None]) -> bool:
        """Wait for the next token; False: the client has gone meanwhile, and the server has seen it."""
        if not script.held:
            await asyncio.sleep(script.token_s)
            return not leaving.done()
        token = asyncio.create_task(self._steps.acquire())
        await asyncio.wait({token, leaving}, return_when=asyncio.FIRST_COMPLETED)
        token.cancel()
        return not leaving.done()

    async def _gone(self, request: web.Request) -> None:
        """Return once a look, of which there is one every so often, finds the connection closed."""
        while True:
            await asyncio.sleep(self._poll_s)
            if request.transport is None or request.transport.is_closing():
                return

    async def _fail(self, request: web.Request, response: web.StreamResponse, *, chat: bool) -> web.StreamResponse:
        if chat or self.generation == "1.2":
            return self._break_off(request, response)
        error = {"message": "executor failed", "type": "server_error", "code": None, "param": None}
        await response.write(b"data: " + msgspec.json.encode({"error": error}) + b"\n\n")
        await response.write(DONE + DONE)
        await response.write_eof()
        return response

    def _iterated(self) -> None:
        running = self.queue.running
        blocks = {"usedNumBlocks": 10 * running, "maxNumBlocks": BLOCKS, "tokensPerBlock": TOKENS_PER_BLOCK}
        told = self._unread if self.generation == "1.4" else self._iterations
        told.append(
            {"iter": self.untold, "numActiveRequests": running, "numQueuedRequests": self.queue.waiting,
             "maxNumActiveRequests": self._max_batch,
             "kvCacheStats": {**blocks, "freeNumBlocks": BLOCKS - 10 * running}}
        )  # fmt: skip
        del told[:-1_000]
        self._iterated_one.set()


class Chunks:
    """Events of one answer, dumped as pydantic does: without what is None, in chat; with it, in completions."""

    def __init__(self, generation: Generation, body: dict[str, Any], script: Script, chat: bool) -> None:
        self._one = generation == "1.4"
        self._model = body["model"]
        self._script = script
        self._chat = chat
        options = body.get("stream_options") or {}
        self._continuous = bool(options.get("continuous_usage_stats"))
        self._id, self._created = self._new_id(), int(time.time())

    def role(self, choice: int) -> bytes:
        """A space stands before its end."""
        return self._event({"index": choice, "delta": {"role": "assistant"}}, 0)[:-2] + b" \n\n"

    def token(self, choice: int, index: int, finish: str | None) -> bytes:
        """finish: its reason on the last one."""
        text: dict[str, Any] = {"delta": {"content": f" t{index}"}} if self._chat else {"text": f" t{index}"}
        ended = {"finish_reason": finish} if finish or not self._chat else {}
        return self._event({"index": choice, **text, **ended}, index + 1)

    def usage(self, tokens: int) -> bytes:
        """The last one, without choices."""
        return self._framed({"choices": [], "usage": self.usage_of(tokens)})

    def _event(self, choice: dict[str, Any], tokens: int) -> bytes:
        usage = {"usage": self.usage_of(tokens)} if self._continuous else {} if self._chat else {"usage": None}
        return self._framed({"choices": [choice], **usage})

    def _framed(self, fields: dict[str, Any]) -> bytes:
        if not self._one:
            self._id, self._created = self._new_id(), int(time.time())
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        head = {"id": self._id, "object": kind, "created": self._created, "model": self._model}
        return b"data: " + msgspec.json.encode(head | fields) + b"\n\n"

    def whole(self, tokens: int, counted: int) -> dict[str, Any]:
        """An answer that is not streamed; none of ours is. counted: the tokens of all choices."""
        text = "".join(f" t{index}" for index in range(tokens))
        said: dict[str, Any] = {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        kind = "chat.completion" if self._chat else "text_completion"
        choice = {"index": 0, **said, "finish_reason": "stop"}
        return {
            "id": self._id, "object": kind, "created": self._created, "model": self._model, "choices": [choice],
            "usage": self.usage_of(counted),
        }  # fmt: skip

    def usage_of(self, tokens: int) -> dict[str, Any]:
        """As of every event and answer."""
        prompt = self._script.prompt_tokens
        details = {"cached_tokens": self._script.cached_tokens}
        return {
            "prompt_tokens": prompt, "total_tokens": prompt + tokens, "completion_tokens": tokens,
            "prompt_tokens_details": details,
        }  # fmt: skip

    def _new_id(self) -> str:
        return ("chatcmpl-" if self._chat else "cmpl-") + uuid.uuid4().hex


async def _write(response: web.StreamResponse, some: bytes) -> None:
    """What nobody reads any more goes nowhere: a client is gone once the server has looked."""
    with contextlib.suppress(ConnectionError):
        await response.write(some)


def _is_prefill(body: dict[str, Any]) -> bool:
    """What a front asks a context server."""
    return (body.get("disaggregated_params") or {}).get("request_type") == "context_only"


def _words(body: dict[str, Any]) -> int:
    """Of a prompt, each of which counts as a token."""
    said = [str(message.get("content")) for message in body.get("messages") or [{"content": body.get("prompt")}]]
    return sum(len(text.split()) for text in said)


def _too_long(prompt_tokens: int) -> str:
    """With chunked prefill, as the guide and `engines render` have it; without it a prompt is held against
    max_num_tokens first."""
    left = f"`default_max_tokens` ({WINDOW - prompt_tokens})"
    return (
        f"{left} must be greater than 0, {left} = max_seq_len ({WINDOW}) - `splited_prompt_len` ({prompt_tokens}) - "
        "`query_token_len` (0)"
    )


def _flat(message: str) -> web.Response:
    error = {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400}
    return web.json_response(error, status=400)


@contextlib.asynccontextmanager
async def fake_tensorrt_llm(
    generation: Generation, *, disconnect_poll_s: float = 1.0, silence_s: float = 2.0, max_batch: int = MAX_BATCH
) -> AsyncIterator[tuple[FakeTensorRTLLM, str]]:
    """A running server, and its URL. It ends by itself where its executor dies."""
    fake = FakeTensorRTLLM(generation, disconnect_poll_s=disconnect_poll_s, silence_s=silence_s, max_batch=max_batch)
    runner = web.AppRunner(fake.app(), access_log=None, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]

    async def ends() -> None:
        await fake.died.wait()
        await runner.cleanup()

    ending = asyncio.create_task(ends())
    try:
        yield fake, f"http://127.0.0.1:{port}"
    finally:
        fake.died.set()
        await ending
