"""How each client reads its answer: its own rules, from its source (what it does not look at is not looked at here)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"
Reader = Callable[[dict[str, Any], str, bytes], str]
"""(request's body, answer's content type, answer's body) to the text that the user is shown."""


def llama_vim(asked: dict[str, Any], kind: str, raw: bytes) -> str:
    """`autoload/llama.vim`: what does not look like compact JSON is dropped without a word."""
    text = raw.decode()
    assert re.search(r"^\s*{", text)
    assert re.search(r'"content"\s*:"', text)
    assert len(text.splitlines()) == 1
    answer = msgspec.json.decode(raw)
    assert list(answer) == asked["response_fields"]
    for name in answer:
        assert isinstance(answer[name], {"content": str, "truncated": bool}.get(name, (int, float))), name
    assert answer["timings/predicted_n"] > 0
    lines = answer["content"].split("\n")
    while len(lines) > 1 and not lines[-1]:
        lines.pop()
    return "\n".join(lines)


def nothing(asked: dict[str, Any], kind: str, raw: bytes) -> str:
    """A warm-up's answer is not read."""
    assert raw == b"{}"
    return ""


def llama_vscode(asked: dict[str, Any], kind: str, raw: bytes) -> str:
    """`src/llama-server.ts`: axios parses by content type."""
    assert kind == JSON
    answer = msgspec.json.decode(raw)
    assert isinstance(answer, dict)
    assert answer["timings"]["predicted_n"] > 0
    return str(answer["content"])


def llama_vscode_several(asked: dict[str, Any], kind: str, raw: bytes) -> str:
    """An array has a completion in each object; they are shown one after the other, each once."""
    assert kind == JSON
    answers = msgspec.json.decode(raw)
    assert len(answers) == asked["n_cmpl"]
    (text,) = {answer["content"] for answer in answers}
    return str(text)


def openai_text(asked: dict[str, Any], kind: str, raw: bytes) -> str:
    """OpenAI's legacy completion."""
    answer = msgspec.json.decode(raw)
    assert isinstance(answer["id"], str)
    assert answer["usage"]["completion_tokens"] > 0
    (choice,) = answer["choices"]
    return str(choice["text"])


def tabby_agent(asked: dict[str, Any], kind: str, raw: bytes) -> str:
    """`id`, and each choice's `index` and `text`; the rest is OpenAI's, whose clients must be able to read it too."""
    answer = msgspec.json.decode(raw)
    assert answer["id"].startswith("cmpl-")
    assert [choice["index"] for choice in answer["choices"]] == [0]
    assert set(answer) >= {"id", "object", "created", "model", "choices", "usage"}
    assert set(answer["choices"][0]) == {"index", "text", "finish_reason", "logprobs"}
    assert answer["mode"] == "standard"
    return openai_text(asked, kind, raw)


def sse_text(asked: dict[str, Any], kind: str, raw: bytes) -> str:
    """Continue and the Copilot plugin: `choices[0].text` until `[DONE]`."""
    assert kind == EVENTS
    assert raw.endswith(b"data: [DONE]\n\n")
    return "".join(event["choices"][0]["text"] for event in events(raw) if event["choices"])


def sse_delta(asked: dict[str, Any], kind: str, raw: bytes) -> str:
    """Continue's `_streamFim`: `choices[0].delta.content`."""
    assert kind == EVENTS
    assert raw.endswith(b"data: [DONE]\n\n")
    deltas = [event["choices"][0]["delta"] for event in events(raw) if event["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)


def sse_content(asked: dict[str, Any], kind: str, raw: bytes) -> str:
    """Continue's `LlamaCpp.ts`: every event has `content`; llama.cpp's last one says `stop`."""
    assert kind == EVENTS
    *frames, last = events(raw)
    assert [frame["stop"] for frame in frames] == [False] * len(frames)
    assert last["stop"] is True
    assert last["content"] == ""
    assert last["tokens_predicted"] > 0
    return "".join(frame["content"] for frame in frames)


def events(raw: bytes) -> Iterator[dict[str, Any]]:
    """As `streamSse` of @continuedev/fetch reads them: lines that begin with `data:`, JSON behind it."""
    for line in raw.decode().split("\n"):
        if line.startswith("data:") and line.removeprefix("data:").strip() != "[DONE]":
            event = msgspec.json.decode(line.removeprefix("data:"))
            assert "error" not in event
            yield event


READERS: dict[str, Reader] = {
    reader.__name__: reader
    for reader in (
        llama_vim, nothing, llama_vscode, llama_vscode_several, openai_text, tabby_agent, sse_text, sse_delta,
        sse_content,
    )
}  # fmt: skip
