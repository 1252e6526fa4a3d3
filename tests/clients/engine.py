"""An engine that does what a request needs: it calls tools, follows schemas and thinks, in vLLM's wire format.

A small model does none of that reliably, and a client's fault must not be a model's.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import re
import struct
from collections.abc import AsyncIterator, Iterator
from typing import Any

from aiohttp import web

from tests.serving import serving

MODEL, VECTORS = "scripted", "scripted-vectors"
CONTEXT_TOKENS = 200_000
TEXT = "The capital of France is Paris."
THOUGHT = "The user wants a capital."
WORDS = re.compile(r"\S+\s*")
ENDLESS = re.compile(r"count forever for (\S+)")
CALL = re.compile(r"CALL (\S+) (\{.*?\}) END", re.DOTALL)
"""In a prompt, for clients that choose their tools themselves: the call that the model makes."""
LONGEST_TOKENS = 3_000
TOKEN_GAP_S = 0.02
Json = dict[str, Any]


class ScriptedEngine:
    """left: the names in endless requests whose client has left."""

    def __init__(self) -> None:
        self.left: set[str] = set()
        self.url = ""

    async def models(self, request: web.Request) -> web.Response:
        """Both models, and health."""
        served = [{"id": name, "object": "model", "max_model_len": CONTEXT_TOKENS} for name in (MODEL, VECTORS)]
        return web.json_response({"object": "list", "data": served})

    async def embeddings(self, request: web.Request) -> web.Response:
        """Three numbers for each text."""
        body = await request.json()
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        numbers = [0.6, 0.8, 0.0]
        base64_form = base64.b64encode(struct.pack("<3f", *numbers)).decode()
        vector = base64_form if body.get("encoding_format") == "base64" else numbers
        data = [{"object": "embedding", "index": index, "embedding": vector} for index in range(len(texts))]
        usage = {"prompt_tokens": 4 * len(texts), "total_tokens": 4 * len(texts)}
        return web.json_response({"id": "e", "object": "list", "model": body["model"], "data": data, "usage": usage})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """A stream; the gateway requests nothing else."""
        body = await request.json()
        texts = list(_texts(body["messages"]))
        endless = next((found for text in texts if (found := ENDLESS.search(text))), None)
        call = _call(body, texts)
        deltas: Iterator[Json]
        if endless:
            deltas = ({"content": f"{number} "} for number in range(LONGEST_TOKENS))
        elif call:
            deltas = iter(_call_deltas(*call))
        else:
            deltas = iter(_text_deltas(body, texts))
        prompt = sum(len(text.split()) for text in texts) or 1
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        common = {"id": "chatcmpl-e", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
        tokens = 0

        async def send(choices: list[Json]) -> None:
            usage = {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}
            event = {**common, "choices": choices, "usage": usage}
            await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")

        def choice(delta: Json, finish: str | None = None) -> Json:
            return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}

        try:
            await send([choice({"role": "assistant", "content": ""})])
            finish = "tool_calls" if call else "stop"
            for delta in itertools.islice(deltas, body["max_tokens"]):
                tokens += 1
                await send([choice(delta)])
                if endless:
                    await asyncio.sleep(TOKEN_GAP_S)
            if not call and tokens == body["max_tokens"]:
                finish = "length"
            await send([choice({}, finish)])
            await send([])
            await response.write(b"data: [DONE]\n\n")
        except (ConnectionError, asyncio.CancelledError):
            if endless:
                self.left.add(endless.group(1))
        return response


def _texts(messages: list[Json]) -> Iterator[str]:
    for message in messages:
        content = message.get("content") or ""
        for part in [{"text": content}] if isinstance(content, str) else content:
            yield part.get("text") or ""


def _call(body: Json, texts: list[str]) -> tuple[str, str] | None:
    """The name and arguments of the call that this turn makes."""
    tools = {tool["function"]["name"]: tool["function"] for tool in body.get("tools") or ()}
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        name = choice["function"]["name"]
        return name, json.dumps(value_of(tools[name].get("parameters") or {}))
    if not tools or choice == "none" or any(message["role"] == "tool" for message in body["messages"]):
        return None
    for text in texts:
        if (found := CALL.search(text)) and found.group(1) in tools:
            return found.group(1), found.group(2).replace('\\"', '"')  # OpenCode sends its prompt in quotes
    if choice == "required" or any("use the tool" in text for text in texts):
        name, function = next(iter(tools.items()))
        return name, json.dumps(value_of(function.get("parameters") or {}))
    return None


def _call_deltas(name: str, arguments: str) -> list[Json]:
    head = {"index": 0, "id": "call_scripted", "type": "function", "function": {"name": name, "arguments": ""}}
    half = len(arguments) // 2
    rest = [{"index": 0, "function": {"arguments": part}} for part in (arguments[:half], arguments[half:])]
    return [{"tool_calls": [part]} for part in (head, *rest)]


def _text_deltas(body: Json, texts: list[str]) -> list[Json]:
    form = body.get("response_format") or {}
    if form.get("type") == "json_schema":
        text = json.dumps(value_of(form["json_schema"]["schema"]))
    elif form.get("type") == "json_object":
        text = '{"city": "Paris"}'
    else:
        text = TEXT
    thoughts = WORDS.findall(THOUGHT) if any("think first" in one for one in texts) else []
    return [{"reasoning_content": word} for word in thoughts] + [{"content": word} for word in WORDS.findall(text)]


def value_of(schema: Json, root: Json | None = None) -> Any:
    """A value that the schema admits; fails for forms that no client here sends."""
    root = schema if root is None else root
    if "$ref" in schema:
        found: Any = root
        for name in schema["$ref"].removeprefix("#/").split("/"):
            found = found[name]
        return value_of(found, root)
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return value_of(schema[several][0], root)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "object")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        return {name: value_of(each, root) for name, each in schema.get("properties", {}).items()}
    if kind == "array":
        return [value_of(schema.get("items", {"type": "string"}), root)]
    return {"string": "Paris", "integer": 1, "number": 1.0, "boolean": True, "null": None}[kind]


@contextlib.asynccontextmanager
async def scripted_engine() -> AsyncIterator[ScriptedEngine]:
    """One on a free port of this machine."""
    engine = ScriptedEngine()
    app = web.Application(client_max_size=64 << 20)
    for path in ("/v1/models", "/health"):
        app.router.add_get(path, engine.models)
    app.router.add_post("/v1/chat/completions", engine.chat)
    app.router.add_post("/v1/embeddings", engine.embeddings)
    async with serving(app) as engine.url:
        yield engine
