"""Writes SGLang's stream events, as version 0.5.23 lays them out."""

from __future__ import annotations

import msgspec

CHUNK = b"%x\r\n%b\r\n"
DONE = b"data: [DONE]\n\n"


def token_text(index: int) -> str:
    """The text of a choice's token: tests know what the whole answer must be."""
    return f" t{index}"


def answer_text(tokens: int) -> str:
    """The text of a choice after so many tokens."""
    return "".join(map(token_text, range(tokens)))


def whole_chat(model: str, prompt_tokens: int, tokens: int) -> dict[str, object]:
    """The body of a chat that is not streamed. Gateways of ours never ask for one; others do."""
    message = {"role": "assistant", "content": answer_text(tokens)}
    return {
        "id": "whole",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": tokens,
            "total_tokens": prompt_tokens + tokens,
        },
    }


class ChunkWriter:
    """Events of one request."""

    def __init__(
        self,
        *,
        chat: bool,
        model: str,
        created: int,
        ids: list[str],
        prompt_tokens: int,
        cached_tokens: int,
        running_usage: bool,
        logprobs: bool,
        usage_stops_after: int = -1,
        usage_unreadable_after: int = -1,
        texts: tuple[str, ...] = (),
        tool: str = "",
    ) -> None:
        """ids: one per choice. The last four: as `Script` has them."""
        self._tool = msgspec.json.encode(tool) if tool else b""
        self._texts = [msgspec.json.encode(text) for text in texts]
        self._chat = chat
        self._prompt_tokens = prompt_tokens
        self._cached = cached_tokens
        self._running_usage = running_usage
        self._usage_stops_after = usage_stops_after
        self._usage_unreadable_after = usage_unreadable_after
        self._logprobs = logprobs
        kind = b"chat.completion.chunk" if chat else b"text_completion"
        self._tail = b'","object":"%b","created":%d,"model":%b,"choices":[' % (
            kind,
            created,
            msgspec.json.encode(model),
        )
        self._heads = [b'data: {"id":"' + id_.encode() + self._tail for id_ in ids]

    def role(self, choice: int) -> bytes:
        """Chat's first event."""
        return (
            b'%b{"index":%d,"delta":{"reasoning_content":null,"role":"assistant","content":""},"logprobs":null,'
            b'"finish_reason":null,"matched_stop":null}]}\n\n' % (self._heads[choice], choice)
        )

    def token(self, choice: int, index: int, finish: bytes = b"null") -> bytes:
        """One token's event; finish is for completions, which end on their last token."""
        usage = self._running(index) or (b"" if self._chat else b',"usage":null')
        if self._chat:
            logprobs = (
                b'{"content":[{"token":" t%d","bytes":null,"logprob":-0.5,"top_logprobs":[]}]}' % index
                if self._logprobs
                else b"null"
            )
            return (
                b'%b{"index":%d,"delta":{"reasoning_content":null,%b},"logprobs":%b,"finish_reason":null,'
                b'"matched_stop":null}]%b}\n\n' % (self._heads[choice], choice, self._said(index), logprobs, usage)
            )
        logprobs = (
            b'{"text_offset":[-1],"token_logprobs":[-0.5],"tokens":[" t%d"],"top_logprobs":[]}' % index
            if self._logprobs
            else b"null"
        )
        text = self._text(index)
        return b'%b{"index":%d,"text":%b,"logprobs":%b,"finish_reason":%b,"matched_stop":null}]%b}\n\n' % (
            self._heads[choice], choice, text, logprobs, finish, usage,
        )  # fmt: skip

    def finish(self, choice: int, reason: bytes, tokens: int) -> bytes:
        """The event that ends a choice without a token."""
        if self._chat:
            return (
                b'%b{"index":%d,"delta":{"reasoning_content":null},"logprobs":null,"finish_reason":%b,'
                b'"matched_stop":null}]}\n\n' % (self._heads[choice], choice, reason)
            )
        usage = self._running(tokens - 1) or b',"usage":null'
        return b'%b{"index":%d,"text":"","logprobs":null,"finish_reason":%b,"matched_stop":null}]%b}\n\n' % (
            self._heads[choice], choice, reason, usage,
        )  # fmt: skip

    def usage(self, prompts: int, completion_tokens: int) -> bytes:
        """The last event before [DONE]: all choices together."""
        whole = self._usage(completion_tokens, self._prompt_tokens * prompts, self._cached * prompts)
        return b"%b]%b}\n\n" % (self._heads[0], whole)

    def extension(self, told: dict[str, object]) -> bytes:
        """What is told beside the usage, in an event of its own before it."""
        return b'%b],"sglext":%b}\n\n' % (self._heads[0], msgspec.json.encode(told))

    def error(self, message: str, code: int) -> bytes:
        """An error inside a stream."""
        body = {"object": "error", "message": message, "type": "InternalServerError", "param": None, "code": code}
        return b"data: " + msgspec.json.encode({"error": body}) + b"\n\n"

    def _text(self, index: int) -> bytes:
        return self._texts[index] if index < len(self._texts) else b'" t%d"' % index

    def _said(self, index: int) -> bytes:
        """A chat's text, or the piece of a tool's call: SGLang sends the name first, then the arguments."""
        if not self._tool:
            return b'"content":' + self._text(index)
        name = b"" if index else b'"name":%b,' % self._tool
        call = b"" if index else b'"id":"call_0","type":"function",'
        return b'"tool_calls":[{%b"index":0,"function":{%b"arguments":%b}}]' % (call, name, self._text(index))

    def _running(self, index: int) -> bytes:
        """What the event of this token tells, or nothing."""
        if not self._running_usage or 0 <= self._usage_stops_after <= index:
            return b""
        if 0 <= self._usage_unreadable_after <= index:
            return b',"usage":{"prompt_tokens":"some","completion_tokens":"a few"}'
        return self._usage(index + 1)

    def _usage(self, completion: int, prompt: int | None = None, cached: int | None = None) -> bytes:
        prompt = self._prompt_tokens if prompt is None else prompt
        return (
            b',"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":'
            b'{"cached_tokens":%d},"reasoning_tokens":0,"completion_tokens_details":null}'
            % (prompt, prompt + completion, completion, self._cached if cached is None else cached)
        )
