"""A fast fake of SGLang's HTTP server, as a process of its own: `python -m tests.fakes.engine --port 0 --token T`.

It prints `listening PORT`. Scripts say what happens (`script.py`); `GET /recorded` tells what did; `GET /wait` answers
when something has happened, so that tests need not poll. No model: tokens are ` t0 t1 t2…`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import parse_qs

import httptools
import msgspec
import uvloop

from tests.fakes.chunks import CHUNK, DONE, ChunkWriter
from tests.fakes.script import Script, of_request

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"
KEPT_RECORDS = 20_000
OPEN_PATHS = ("/health", "/metrics")


class StreamOptions(msgspec.Struct):
    include_usage: bool = False
    continuous_usage_stats: bool = False


class Asked(msgspec.Struct):
    """The fields of a generation request that change the answer."""

    model: str = "default"
    rid: str = ""
    n: int = 1
    max_tokens: int = 16
    stream: bool = False
    stream_options: StreamOptions | None = None
    prompt: msgspec.Raw = msgspec.Raw(b"")
    logprobs: bool | int | None = None
    return_spec_tokens_details: bool = False


class Record(msgspec.Struct):
    """What happened to one request. body is raw JSON, headers are lower case."""

    rid: str
    path: str
    headers: dict[str, str]
    body: msgspec.Raw
    tokens: int = 0
    """Generated, all choices together."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    finished: bool = False
    """The answer was written to its end, aborted or not."""
    aborted: bool = False
    disconnected: bool = False
    """The caller left before the end."""

    @property
    def ended(self) -> bool:
        return self.finished or self.disconnected


class FakeEngine:
    """State shared by all connections."""

    def __init__(self, token: str, model: str, kept_records: int = KEPT_RECORDS, *, brief: bool = False) -> None:
        """brief: records keep neither headers nor body, for runs of very many requests."""
        self.token = f"Bearer {token}".encode() if token else b""
        self.model = model
        self.brief = brief
        self.prompt_tokens = self.cached_tokens = self.generated_tokens = 0
        """Since the process started, as SGLang's counters."""
        self._kept_records = kept_records
        self.script = Script()
        self.healthy = True
        self.records: dict[str, Record] = {}
        self.live: dict[str, Generating] = {}
        self.requests = 0
        self.connections = 0
        self._waiters: list[tuple[Callable[[], bool], Callable[[], None]]] = []

    def record(self, record: Record) -> None:
        self.requests += 1
        self.records[record.rid] = record
        if len(self.records) > self._kept_records:
            del self.records[next(iter(self.records))]

    def changed(self) -> None:
        """Something a waiter may wait for."""
        if self._waiters:
            ready = [entry for entry in self._waiters if entry[0]()]
            self._waiters = [entry for entry in self._waiters if entry not in ready]
            for _, answer in ready:
                answer()

    def wait(self, query: dict[str, str], answer: Callable[[], None]) -> None:
        """answer is called once the counters of all records have reached those in the query."""
        counters = {
            "requests": lambda: self.requests,
            "ended": lambda: sum(record.ended for record in self.records.values()),
            "finished": lambda: sum(record.finished for record in self.records.values()),
            "aborted": lambda: sum(record.aborted for record in self.records.values()),
            "disconnected": lambda: sum(record.disconnected for record in self.records.values()),
            "tokens": lambda: sum(record.tokens for record in self.records.values()),
        }
        wanted = {name: int(count) for name, count in query.items()}
        self._waiters.append((lambda: all(counters[name]() >= count for name, count in wanted.items()), answer))
        self.changed()

    def control(self, body: bytes) -> None:
        """`healthy` and `reset` are the engine's own; every other field is the default script's."""
        fields: dict[str, Any] = msgspec.json.decode(body)
        self.healthy = fields.pop("healthy", self.healthy)
        if fields.pop("reset", False):
            self.script = Script()
            self.records.clear()
            self.requests = 0
        self.script = msgspec.convert({**msgspec.structs.asdict(self.script), **fields}, Script)

    def metrics(self) -> str:
        """The counters that reconciliation reads, in SGLang's names."""
        values = {
            "prompt_tokens_total": self.prompt_tokens,
            "cached_tokens_total": self.cached_tokens,
            "generation_tokens_total": self.generated_tokens,
        }
        return "".join(f'sglang:{name}{{model_name="{self.model}"}} {float(value)}\n' for name, value in values.items())

    def loads(self) -> dict[str, Any]:
        running = len(self.live)
        rank = {
            "dp_rank": 0,
            "num_running_reqs": running,
            "num_waiting_reqs": 0,
            "num_used_tokens": 100 * running,
            "max_total_num_tokens": 100_000,
            "token_usage": running / 1_000,
        }
        return {"version": "fake", "loads": [rank]}


class Generating:
    """One request being answered; emits from timers and never waits."""

    def __init__(self, connection: Connection, asked: Asked, record: Record, script: Script, prompts: int) -> None:
        self._connection = connection
        self._engine = connection.engine
        self._record = record
        self._script = script
        self._prompts = prompts
        self._choices = asked.n * prompts
        self._tokens = min(script.tokens, asked.max_tokens)
        self._reason = b'"length"' if script.tokens >= asked.max_tokens else b'"stop"'
        options = asked.stream_options or StreamOptions()
        self._chat = record.path.startswith("/v1/chat")
        self._tells_drafts = asked.return_spec_tokens_details and script.drafts > 0
        self._final_usage = options.include_usage and script.usage and script.usage_stops_after < 0
        own = script.own_ids and self._choices > 1
        self._writer = ChunkWriter(
            chat=self._chat,
            model=asked.model,
            created=int(time.time()),
            ids=[f"own-{record.rid[-8:]}-{index}" if own else record.rid for index in range(self._choices)],
            prompt_tokens=record.prompt_tokens,
            cached_tokens=record.cached_tokens,
            running_usage=options.continuous_usage_stats and script.usage,
            usage_stops_after=script.usage_stops_after,
            usage_unreadable_after=script.usage_unreadable_after,
            logprobs=asked.logprobs is not None and asked.logprobs is not False,
        )
        self.abortable = not own
        self._index = 0
        self._started = False
        self._held: list[bytes] = []
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time() + script.ttft_s

    def start(self) -> None:
        if self._script.hang:
            return
        if self._script.die_after_tokens == 0:
            self._connection.die()
        elif self._script.ttft_s or self._script.inter_token_s or self._script.text_gap_s:
            self._timer = self._loop.call_at(self._due, self._tick)
        else:
            self._run_at_once()

    def abort(self) -> None:
        """End as SGLang does: a finish_reason of its own, exact usage, [DONE]."""
        self._cancel()
        self._record.aborted = True
        events = [] if self._started else self._begin()
        events += [self._writer.finish(index, b'"abort"', self._index) for index in range(self._choices)]
        self._end(events)

    def leave(self) -> None:
        """The caller closed the connection."""
        self._cancel()
        self._record.disconnected = True
        self._engine.live.pop(self._record.rid, None)
        self._engine.changed()

    def _tick(self) -> None:
        if self._script.text_gap_s and not self._started:
            self._send(self._begin())
            self._due += self._script.text_gap_s
            self._timer = self._loop.call_at(self._due, self._tick)
            return
        events = [] if self._started else self._begin()
        stopped = self._step(events)
        if stopped:
            return
        self._send(events)
        self._engine.changed()
        self._due += self._script.inter_token_s
        self._timer = self._loop.call_at(self._due, self._tick)

    def _run_at_once(self) -> None:
        events = self._begin()
        while not self._step(events):
            pass

    def _step(self, events: list[bytes]) -> bool:
        """Add the next token of every choice; True when nothing is to follow."""
        script, index = self._script, self._index
        if index in (script.die_after_tokens, script.hang_after_tokens, script.error_after_tokens):
            return self._break_off(events)
        if index >= self._tokens:
            self._end(events)
            return True
        last = index + 1 == self._tokens
        finish = self._reason if last and not self._chat else b"null"
        token = self._writer.token
        events.extend([token(choice, index, finish) for choice in range(self._choices)])
        self._index = index + 1
        self._record.tokens += self._choices
        self._engine.generated_tokens += self._choices
        if last and index + 1 not in (script.die_after_tokens, script.hang_after_tokens, script.error_after_tokens):
            if self._chat:
                events.extend([self._writer.finish(choice, self._reason, 0) for choice in range(self._choices)])
            self._end(events)
            return True
        return False

    def _break_off(self, events: list[bytes]) -> bool:
        script = self._script
        if self._index == script.error_after_tokens:
            self._record.finished = True
            self._finish([*events, self._writer.error("scripted failure", script.error_code), DONE])
            return True
        self._send(events)
        self._flush()
        if self._index == script.die_after_tokens:
            self._connection.die()
        self._engine.changed()
        return True

    def _begin(self) -> list[bytes]:
        self._started = True
        self._connection.write(STREAM_HEAD)
        if self._chat and self._script.role_first:
            return [self._writer.role(choice) for choice in range(self._choices)]
        return []

    def _end(self, events: list[bytes]) -> None:
        if self._tells_drafts:
            events.append(self._writer.drafts(self._choices, self._script.drafts, self._script.accepted_drafts))
        if self._final_usage:
            events.append(self._writer.usage(self._prompts, self._record.tokens))
        events.append(DONE)
        self._record.finished = True
        self._finish(events)

    def _finish(self, events: list[bytes]) -> None:
        self._engine.live.pop(self._record.rid, None)
        self._send(events)
        self._flush()
        self._connection.write(LAST_CHUNK)
        self._connection.generation_ended()
        self._engine.changed()

    def _send(self, events: list[bytes]) -> None:
        if self._script.split == "joined":
            self._held += events
        elif self._script.split == "byte":
            for event in events:
                self._connection.write_bytes_apart(CHUNK % (len(event), event))
        elif events:
            # events of one moment leave in one segment, as they do from a server on the same loop turn
            self._connection.write(b"".join([CHUNK % (len(event), event) for event in events]))

    def _flush(self) -> None:
        if self._held:
            whole = b"".join(self._held)
            self._held = []
            self._connection.write(CHUNK % (len(whole), whole))

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Connection(asyncio.Protocol):
    """One caller. Callbacks named on_* belong to httptools."""

    def __init__(self, engine: FakeEngine) -> None:
        self.engine = engine
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._body = b""
        self._generating: Generating | None = None
        self._transport: asyncio.Transport
        self._apart = b""
        self._apart_running = False
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.engine.connections += 1

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.engine.connections -= 1
        if self._generating is not None:
            self._generating.leave()
            self._generating = None

    def on_message_begin(self) -> None:
        self._url, self._headers, self._body = b"", {}, b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        path, _, query = self._url.decode().partition("?")
        engine = self.engine
        if engine.token and path not in OPEN_PATHS and self._headers.get(b"authorization") != engine.token:
            self.answer(401, {"error": "Unauthorized"})
        elif path in ("/v1/chat/completions", "/v1/completions"):
            self._generate(path)
        else:
            self._serve(path, {name: values[0] for name, values in parse_qs(query).items()})

    def generation_ended(self) -> None:
        self._generating = None

    def die(self) -> None:
        """Close without a word, as a killed process does."""
        self._transport.close() if self._transport.get_write_buffer_size() else self._transport.abort()

    def write(self, data: bytes) -> None:
        if self._apart_running:
            self._apart += data
        else:
            self._transport.write(data)

    def write_bytes_apart(self, data: bytes) -> None:
        """One byte in each turn of the loop, so that each is a write of its own."""
        self._apart += data
        if not self._apart_running:
            self._apart_running = True
            self._loop.call_soon(self._write_one)

    def answer(self, status: int, body: Any) -> None:
        if self._transport.is_closing():
            return  # a waiter that has left
        self._answer(status, b"application/json", msgspec.json.encode(body))

    def answer_text(self, status: int, body: str) -> None:
        self._answer(status, b"text/plain; charset=utf-8", body.encode())

    def _answer(self, status: int, kind: bytes, content: bytes) -> None:
        head = b"HTTP/1.1 %d X\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n" % (status, kind, len(content))
        self._transport.write(head + content)

    def _write_one(self) -> None:
        self._transport.write(self._apart[:1])
        self._apart = self._apart[1:]
        self._apart_running = bool(self._apart)
        if self._apart_running:
            self._loop.call_soon(self._write_one)

    def _generate(self, path: str) -> None:
        engine, body = self.engine, self._body
        try:
            asked = msgspec.json.decode(body, type=Asked)
            script = of_request(engine.script, body)
        except (msgspec.DecodeError, ValueError) as error:
            self.answer(400, _refusal(str(error)))
            return
        rid = asked.rid or f"minted-{engine.requests}"
        if rid in engine.live:
            self.answer(400, _refusal(f"Duplicate request ID detected: {rid}"))
            return
        headers = {} if engine.brief else {name.decode(): value.decode() for name, value in self._headers.items()}
        record = Record(rid, path, headers, msgspec.Raw(b"{}" if engine.brief else body))
        prompts, length = _prompt_size(asked, body)
        record.prompt_tokens = script.prompt_tokens or length
        record.cached_tokens = script.cached_tokens
        engine.record(record)
        if script.status != 200:
            record.finished = True
            self.answer(script.status, _refusal(script.message, script.status))
            engine.changed()
            return
        if not asked.stream:
            record.finished = True
            self.answer(400, _refusal("the fake engine only streams"))
            return
        self._generating = generating = Generating(self, asked, record, script, prompts)
        engine.live[rid] = generating
        engine.prompt_tokens += record.prompt_tokens * prompts
        engine.cached_tokens += record.cached_tokens * prompts
        generating.start()
        engine.changed()

    def _serve(self, path: str, query: dict[str, str]) -> None:
        engine = self.engine
        if path == "/health":
            self.answer(200 if engine.healthy else 503, {})
        elif path == "/abort_request":
            rid = msgspec.json.decode(self._body).get("rid", "")
            # by prefix, as SGLang does
            named = [generating for live, generating in engine.live.items() if rid and live.startswith(rid)]
            self.answer(200, {})
            for generating in named:
                if generating.abortable:
                    generating.abort()
        elif path == "/usage":
            self._usage(query.get("rid", ""))
        elif path == "/v1/loads":
            self.answer(200, engine.loads())
        elif path == "/get_model_info":
            self.answer(200, {"model_path": engine.model, "served_model_name": engine.model, "is_generation": True})
        elif path == "/v1/models":
            self.answer(
                200, {"object": "list", "data": [{"id": engine.model, "object": "model", "max_model_len": 2048}]}
            )
        elif path == "/metrics":
            self.answer_text(200, engine.metrics())
        elif path == "/control":
            engine.control(self._body)
            self.answer(200, {})
        elif path == "/recorded":
            records = engine.records.values()
            self.answer(200, [record for record in records if query.get("rid", record.rid) == record.rid])
        elif path == "/wait":
            engine.wait(query, lambda: self.answer(200, list(engine.records.values())))
        else:
            self.answer(404, {"detail": "Not Found"})

    def _usage(self, rid: str) -> None:
        record = self.engine.records.get(rid)
        if record is None or not record.ended:
            self.answer(404, _refusal("no such request", 404))
            return
        usage = {
            "prompt_tokens": record.prompt_tokens,
            "completion_tokens": record.tokens,
            "total_tokens": record.prompt_tokens + record.tokens,
            "prompt_tokens_details": {"cached_tokens": record.cached_tokens},
        }
        self.answer(200, {"rid": rid, "usage": usage})


def _refusal(message: str, code: int = 400) -> dict[str, Any]:
    return {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": code}


def _prompt_size(asked: Asked, body: bytes) -> tuple[int, int]:
    """How many prompts, and a token count for each; a fake's guess, but a fixed one."""
    raw = bytes(asked.prompt)
    if not raw:
        return 1, len(body) // 8 + 1
    if raw.startswith(b"["):
        prompt = msgspec.json.decode(raw)
        if not isinstance(prompt[0], int):
            return len(prompt), len(prompt[0]) // 4 + 1
        return 1, len(prompt)
    return 1, len(raw) // 4 + 1


async def serve(port: int, engine: FakeEngine) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Connection(engine), "127.0.0.1", port, backlog=4096)
    print(f"listening {server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--token", default="")
    parser.add_argument("--model", default="fake")
    parser.add_argument("--records", type=int, default=KEPT_RECORDS, help="how many past requests it remembers")
    parser.add_argument("--brief", action="store_true", help="remember no headers and bodies")
    arguments = parser.parse_args()
    try:
        engine = FakeEngine(arguments.token, arguments.model, arguments.records, brief=arguments.brief)
        uvloop.run(serve(arguments.port, engine))
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
