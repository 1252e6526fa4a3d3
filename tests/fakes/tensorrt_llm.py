"""What `trtllm-serve` does on the wire, in either of its two generations, without a model: tokens are ` t0 t1 t2…`.

Every behaviour here stands in the table of docs/guides/tensorrt-llm.md with the place where it was read; what no
client of ours can meet is left out. infra/verify/tensorrt_llm.sh asks a real server for what one shows that works.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any, Literal

import msgspec
from aiohttp import web

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
CACHED_BYTES = 1_000
"""A prompt shorter than that fills no block."""


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
    """HTTP 200 with the body `null`, and no health from then on."""


class Asked(msgspec.Struct):
    """What the server saw of one request."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str]
    tokens: int = 0
    aborted: bool = False
    ended: asyncio.Event = msgspec.field(default_factory=asyncio.Event)


class FakeTensorRTLLM:
    """One server. disconnect_poll_s: how often it looks whether a client has gone; a second for the real one."""

    def __init__(self, generation: Generation, *, disconnect_poll_s: float = 1.0) -> None:
        self.generation = generation
        self.script = Script()
        self.asked: list[Asked] = []
        self.drained = 0
        """Answers of `/metrics` that told of iterations."""
        self.healthy = True
        self._poll_s = disconnect_poll_s
        self._iterations: list[dict[str, Any]] = []
        self._unread: list[dict[str, Any]] = []
        """Iterations that the server's own collector, which 1.4 has beside `return_perf_metrics`, has not read yet: it
        does when a request ends."""
        self._events: list[dict[str, Any]] = []
        self._running = 0
        self._whole_window = asyncio.Lock()
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
        app = web.Application()
        app.router.add_get("/health", self._health)
        app.router.add_get("/version", self._version)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/metrics", self._drain_iterations)
        app.router.add_post("/kv_cache_events", self._drain_events)
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
        return web.json_response({"disaggregated_params": None, "max_batch_size": 64, "tokens_per_block": 32})

    async def _drain_nothing(self, request: web.Request) -> web.Response:
        return web.json_response([])

    async def _drain_iterations(self, request: web.Request) -> web.Response:
        """What one reader takes, no other finds."""
        drained, self._iterations = self._iterations, []
        self.drained += bool(drained)
        return web.json_response(drained)

    async def _drain_events(self, request: web.Request) -> web.Response:
        drained, self._events = self._events, []
        return web.json_response(drained)

    async def _page(self, request: web.Request) -> web.Response:
        if self.generation == "1.2":
            labels = '{engine_type="undefined",finished_reason="stop",model_name="undefined"}'
            return web.Response(text=f"request_success_total{labels} {float(len(self.asked))}\n")
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
                self.healthy = False
                return web.Response(body=b"null", content_type="application/json")
            if script.hangs_up:
                script.hangs_up -= 1
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            if self._reads_again(body):
                script = msgspec.structs.replace(script, cached_tokens=script.prompt_tokens - 1)
            async with contextlib.AsyncExitStack() as stack:
                if "max_tokens" not in body and "max_completion_tokens" not in body:
                    await stack.enter_async_context(self._whole_window)  # KV for all of it: one after another
                if body.get("stream"):
                    return await self._stream(request, asked, script)
                return self._whole(asked, script)
        finally:
            self._iterations += self._unread
            self._unread.clear()
            asked.ended.set()

    def _reads_again(self, body: dict[str, Any]) -> bool:
        """Whether a prompt of some length was read before under the same salt."""
        prompt = msgspec.json.encode(body.get("messages") or body.get("prompt"))
        key = (body.get("cache_salt") or "", prompt)
        known = key in self._prefixes
        if len(prompt) > CACHED_BYTES:
            self._prefixes.add(key)
        return known

    def _whole(self, asked: Asked, script: Script) -> web.Response:
        """An answer that is not streamed; none of ours is, but a front asks a context server so."""
        if (asked.body.get("disaggregated_params") or {}).get("request_type") == "context_only":
            return self._prefilled(asked, script)
        asked.tokens = min(script.tokens, asked.body.get("max_tokens") or 1 << 20)
        self._iterated()
        text = "".join(f" t{index}" for index in range(asked.tokens))
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = _Chunks(self.generation, asked.body, script, chat=True).usage_of(asked.tokens)
        return web.json_response({"id": "chatcmpl-1", "object": "chat.completion", "choices": [choice], "usage": usage})

    def _prefilled(self, asked: Asked, script: Script) -> web.Response:
        """What a generation server needs of a prompt."""
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
        usage = _Chunks(self.generation, asked.body, script, chat=True).usage_of(1)
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
        if (body.get("max_tokens") or 0) > BLOCKS * TOKENS_PER_BLOCK:
            said = (
                "The sum of prompt length (7.0) and query length (0) max_tokens ({}) should not exceed max_seq_len ({})"
            )
            return _flat(said.format(body["max_tokens"], BLOCKS * TOKENS_PER_BLOCK))
        priority = body.get("priority")
        if priority is not None and not 0 <= priority <= 1:
            return _flat("priority must be between 0 and 1")
        return None

    async def _stream(self, request: web.Request, asked: Asked, script: Script) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        chat, body = request.path.endswith("chat/completions"), asked.body
        most = body.get("max_tokens") or body.get("max_completion_tokens") or 1 << 20
        tokens, choices = min(script.tokens, most), body.get("n") or 1
        writer = _Chunks(self.generation, body, script, chat)
        self._running += 1
        self._totals["prompt"] += script.prompt_tokens
        self._totals["cached"] += script.cached_tokens
        leaving = asyncio.create_task(self._gone(request))
        try:
            if chat:
                for choice in range(choices):
                    await response.write(writer.role(choice))
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
                for choice in range(choices):
                    await response.write(writer.token(choice, index, last if index + 1 == tokens else None))
            if (body.get("stream_options") or {}).get("include_usage"):
                await response.write(writer.usage(asked.tokens))
            await response.write(b"data: [DONE]\n\n")
            if asked.headers.get("x-trtllm-return-metrics") == "1" and self.generation == "1.4":
                await response.write(b'event: trtllm.perf_metrics\ndata: {"Server-Timing": "server_ttft;dur=1.0"}\n\n')
            await response.write_eof()
            return response
        except (ConnectionResetError, BrokenPipeError):
            asked.aborted = True
            return response
        finally:
            leaving.cancel()
            self._running -= 1
            self._iterated()

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
        if chat:  # breaks off: neither an event nor [DONE]
            assert request.transport is not None
            request.transport.abort()
            return response
        error = {"message": "executor failed", "type": "server_error", "code": None, "param": None}
        await response.write(b"data: " + msgspec.json.encode({"error": error}) + b"\n\n")
        await response.write(b"data: [DONE]\n\ndata: [DONE]\n\n")
        await response.write_eof()
        return response

    def _iterated(self) -> None:
        blocks = {"usedNumBlocks": 10 * self._running, "maxNumBlocks": BLOCKS, "tokensPerBlock": TOKENS_PER_BLOCK}
        told = self._unread if self.generation == "1.4" else self._iterations
        told.append(
            {"iter": self.untold, "numActiveRequests": self._running, "numQueuedRequests": 0,
             "maxNumActiveRequests": MAX_BATCH,
             "kvCacheStats": {**blocks, "freeNumBlocks": BLOCKS - 10 * self._running}}
        )  # fmt: skip
        del told[:-1_000]


class _Chunks:
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


def _flat(message: str) -> web.Response:
    error = {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400}
    return web.json_response(error, status=400)


@contextlib.asynccontextmanager
async def fake_tensorrt_llm(
    generation: Generation, *, disconnect_poll_s: float = 1.0
) -> AsyncIterator[tuple[FakeTensorRTLLM, str]]:
    """A running server, and its URL."""
    fake = FakeTensorRTLLM(generation, disconnect_poll_s=disconnect_poll_s)
    runner = web.AppRunner(fake.app(), access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        yield fake, f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()
