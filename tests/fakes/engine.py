"""A fast fake of SGLang's HTTP server, as a process of its own: `python -m tests.fakes.engine --port 0 --token T`.

It prints `listening PORT`. Scripts say what happens (`script.py`); `GET /recorded` tells what did; `GET /wait` answers
when something has happened, so that tests need not poll. No model: tokens are ` t0 t1 t2…`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any, cast
from urllib.parse import parse_qs

import httptools
import msgspec
import uvloop

from tests.fakes.chunks import whole_chat
from tests.fakes.engine_state import KEPT_RECORDS, Asked, FakeEngine, Record
from tests.fakes.generating import Generating
from tests.fakes.pooling import POOLING_PATHS, pooled
from tests.fakes.script import of_request

OPEN_PATHS = ("/health", "/metrics")


class Connection(asyncio.Protocol):
    """One caller. Callbacks named on_* belong to httptools."""

    def __init__(self, engine: FakeEngine) -> None:
        self.engine = engine
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._body = b""
        self._generating: Generating | None = None
        self._hanging: Record | None = None
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
        if self._hanging is not None:
            self._hanging.disconnected = True
            self._hanging = None
            self.engine.changed()

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
        elif path in POOLING_PATHS:
            self._pool(path)
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

    def answer(self, status: int, body: Any, retry_after: str = "") -> None:
        if self._transport.is_closing():
            return  # a waiter that has left
        self._answer(status, b"application/json", msgspec.json.encode(body), retry_after)

    def answer_text(self, status: int, body: str) -> None:
        self._answer(status, b"text/plain; charset=utf-8", body.encode())

    def _answer(self, status: int, kind: bytes, content: bytes, retry_after: str = "") -> None:
        head = b"HTTP/1.1 %d X\r\ncontent-type: %b\r\ncontent-length: %d\r\n" % (status, kind, len(content))
        if retry_after:
            head += f"retry-after: {retry_after}\r\n".encode()
        self._transport.write(head + b"\r\n" + content)

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
            self.answer(script.status, _refusal(script.message, script.status), retry_after=script.retry_after)
            engine.changed()
            return
        if not asked.stream:
            record.finished, record.tokens = True, min(script.tokens, asked.max_tokens)
            self.answer(200, whole_chat(engine.model, record.prompt_tokens, record.tokens))
            return
        self._generating = generating = Generating(self, asked, record, script, prompts)
        engine.live[rid] = generating
        engine.prompt_tokens += record.prompt_tokens * prompts
        engine.cached_tokens += record.cached_tokens * prompts
        generating.start()
        engine.changed()

    def _pool(self, path: str) -> None:
        engine, script = self.engine, of_request(self.engine.script, self._body)
        body = msgspec.json.decode(self._body)
        rid = body.get("rid")
        record = Record(str(rid) if rid else f"minted-{engine.requests}", path, {}, msgspec.Raw(self._body))
        engine.record(record)
        if script.die_after_tokens == 0:
            self.die()
        elif script.hang:
            self._hanging = record
        elif script.status != 200:
            record.finished = True
            self.answer(script.status, _refusal(script.message, script.status), retry_after=script.retry_after)
        else:
            record.finished = True
            answer, record.prompt_tokens = pooled(path, body, script)
            engine.prompt_tokens += record.prompt_tokens
            self.answer(200, answer)
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
        elif path == "/finish":  # a test's own, as `/control`
            self.answer(200, {})
            if (ending := engine.live.get(msgspec.json.decode(self._body)["rid"])) is not None:
                ending.finish()
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
