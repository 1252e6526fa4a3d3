"""Request bodies made to cost far more than their bytes: what a key's holder who wishes ill can send."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

MEGABYTE = 1_000_000
PRIVATE_USE = "".join(map(chr, range(0xE000, 0xF900)))
"""All of the basic plane: a text with all of them leaves none over to stand for something else."""
CHAT_PATH = "/v1/chat/completions"
TEXT_PATH = "/v1/completions"


REFUSED = frozenset({400, 413})
TAKEN = frozenset({200, 400})
"""Nothing is wrong with it but perhaps its length."""


class Hostile(msgspec.Struct, frozen=True):
    """One request."""

    name: str
    path: str
    body: bytes
    statuses: frozenset[int]
    """One of these it is answered with."""


def chat(model: str, content: bytes, more: bytes = b"") -> bytes:
    """A conversation of one message. content: JSON. more: further fields, with a comma before them."""
    return b'{"model":"%b","max_tokens":1,"messages":[{"role":"user","content":%b}]%b}' % (
        model.encode(),
        content,
        more,
    )


def text(model: str, prompt: bytes, more: bytes = b"") -> bytes:
    """A completion. prompt: JSON."""
    return b'{"model":"%b","max_tokens":1,"prompt":%b%b}' % (model.encode(), prompt, more)


def many(item: bytes, size: int) -> bytes:
    """A JSON list of about so many bytes."""
    return b"[%b]" % (item + b",").join([b""] * (size // (len(item) + 1))).rstrip(b",")


def long_texts(size: int) -> Iterator[tuple[str, str]]:
    """Texts of about so many bytes that tokenizers find hard, and two that hold a control token."""
    yield "digits", "7" * size
    yield "one letter", "a" * size
    yield "emoji", "😀" * (size // 4)
    yield "joined emoji", "👩‍👩‍👧‍👦" * (size // 25)
    yield "one long word", "pneumonoultramicroscopic" * (size // 24)
    yield "spaces", " " * size
    yield "line ends", "\n" * size
    yield "private use", PRIVATE_USE * (size // (3 * len(PRIVATE_USE)))
    yield "private use and a control token", PRIVATE_USE + "<|end|>"
    yield "control tokens", "<|end|>" * (size // 7)
    yield "half a control token", "<|en" * (size // 4)
    yield "combining marks", "e" + "\u0301" * (size // 2)
    yield "chinese", "汉字" * (size // 6)


def deep(levels: int) -> bytes:
    """Nested lists."""
    return b"[" * levels + b"]" * levels


def inside(value: bytes) -> bytes:
    """A JSON object that holds this one."""
    return b'{"a":%b}' % value


def texts(chat_model: str, text_model: str | None, size: int = MEGABYTE) -> Iterator[Hostile]:
    """Long texts at both endpoints; text_model: None: only at one."""
    for name, long_text in long_texts(size):
        encoded = msgspec.json.encode(long_text)
        yield Hostile(f"{name} to chat", CHAT_PATH, chat(chat_model, encoded), TAKEN)
        if text_model is not None:
            yield Hostile(f"{name} to completions", TEXT_PATH, text(text_model, encoded), TAKEN)
    if text_model is not None:
        prefix = msgspec.json.encode(PRIVATE_USE + "<|end|>")
        yield Hostile("a gap", TEXT_PATH, text(text_model, prefix, b',"suffix":"<|end|>"'), TAKEN)


def long(chat_model: str, text_model: str, size: int = 8 * MEGABYTE - 512) -> Iterator[Hostile]:
    """Bodies that are all structure: as much as their bytes allow, and as much as is taken."""
    model = chat_model.encode()

    def said(name: str, content: bytes, more: bytes = b"") -> Hostile:
        return Hostile(name, CHAT_PATH, chat(chat_model, content, more), REFUSED)

    def spoken(name: str, messages: bytes, statuses: frozenset[int] = REFUSED) -> Hostile:
        body = b'{"model":"%b","max_tokens":1,"messages":%b}' % (model, messages)
        return Hostile(name, CHAT_PATH, body, statuses)

    def asked(name: str, prompt: bytes, statuses: frozenset[int] = REFUSED) -> Hostile:
        return Hostile(name, TEXT_PATH, text(text_model, prompt), statuses)

    part = b'{"type":"text","text":"x"}'
    yield said("parts", many(part, size))
    yield Hostile("as many parts as are taken", CHAT_PATH, chat(chat_model, many(part, 9_900 * 27)), TAKEN)
    for item in (b"[]", b"[[[[]]]]", b'{"a":1}'):
        message = b'{"role":"assistant","content":"x","annotations":%b}' % many(item, size)
        yield spoken(f"annotations {item!r}", b"[%b]" % message)
    message = b'{"role":"user","content":"x"}'
    yield spoken("messages", many(message, size))
    yield spoken("as many messages as are taken", many(message, 9_900 * 30), TAKEN)
    message = b'{"role":"user","content":"x","audio":null}'
    yield spoken("as many messages with nulls as are read", many(message, 19_990 * 43))
    yield spoken("as many messages with nulls as are taken", many(message, 9_900 * 43), TAKEN)
    call = b'{"id":"1","type":"function","function":{"name":"f","arguments":%b}}'
    for name, arguments, statuses in (
        ("deep", inside(deep(1_200)), REFUSED),
        ("very deep", inside(deep(100_000)), REFUSED),
        ("wide", inside(many(b"[]", MEGABYTE)), REFUSED),
        ("as wide as is taken", inside(many(b"[]", 19_000 * 3)), TAKEN),
        ("of a number", inside(b"9" * 5_000), TAKEN),
    ):
        written = call % msgspec.json.encode(arguments.decode())
        yield spoken(f"{name} arguments", b'[{"role":"assistant","tool_calls":[%b]}]' % written, statuses)
    tool = b',"tools":[{"type":"function","function":{"name":"f","parameters":%b}}]'
    yield said("900 levels of parameters", b'"x"', tool % (b'{"a":%b}' % deep(900)))
    yield said("a million levels of parameters", b'"x"', tool % (b'{"a":%b}' % deep(MEGABYTE)))
    taken = chat(chat_model, b'"x"', tool % (b'{"a":%b}' % deep(120)))
    yield Hostile("120 levels of parameters", CHAT_PATH, taken, TAKEN)
    yield said("wide parameters", b'"x"', tool % (b'{"a":%b}' % many(b"{}", size)))
    yield said("many parameters", b'"x"', tool % _keys(size))
    yield said("tools", b'"x"', b',"tools":%b' % many(b'{"type":"function","function":{"name":"f"}}', size))
    # as many members as are taken: too many for their field, or for the template
    few = _keys(95_000 * 12)
    yield said("as many biases as are decoded", b'"x"', b',"logit_bias":%b' % few)
    yield said("as much metadata as is decoded", b'"x"', b',"metadata":%b' % few)
    taken = chat(chat_model, b'"x"', tool % few)
    yield Hostile("as many parameters as are decoded", CHAT_PATH, taken, TAKEN)
    yield said("stops", b'"x"', b',"stop":%b' % many(b'"a"', size))
    yield said("biases", b'"x"', b',"logit_bias":%b' % _keys(size))
    yield said("metadata", b'"x"', b',"metadata":%b' % _keys(size))
    yield asked("token ids", many(b"7", size))
    yield asked("as many token ids as are taken", many(b"7", 190_000 * 2), TAKEN)
    yield asked("empty prompts", many(b"[]", size))
    yield asked("prompts", many(b'"a"', size))
    yield asked("deep prompts", deep(size // 2 - 100))


def crooked(chat_model: str, text_model: str, size: int = 8 * MEGABYTE - 512) -> Iterator[Hostile]:
    """What no field takes, at length."""
    digits = b"9" * (size // 2)

    def said(name: str, content: bytes, more: bytes = b"") -> Hostile:
        return Hostile(name, CHAT_PATH, chat(chat_model, content, more), REFUSED)

    yield said("a long unknown field", b'"x"', b',"%b":1' % (b"a" * (size - 200)))
    yield said("a long choice", b'"x"', b',"reasoning_effort":"%b"' % (b"a" * (size - 200)))
    yield said("a bias for a long id", b'"x"', b',"logit_bias":{"%b":1}' % (b"1" * 4_301))
    for name in ("max_tokens", "seed", "temperature", "n", "top_logprobs"):
        yield said(f"{name} without end", b'"x"', b',"%b":%b' % (name.encode(), digits))
    yield said("an exponent without end", b'"x"', b',"temperature":1e%b' % digits)
    yield said("a content that is a number", digits)
    fraction = chat(chat_model, b'"x"', b',"temperature":0.%b' % digits)
    yield Hostile("a fraction without end", CHAT_PATH, fraction, TAKEN)
    tool = b',"tools":[{"type":"function","function":{"name":"f","parameters":{"a":%b}}}]'
    for length in (30, 4_301, size // 2):
        one = chat(chat_model, b'"x"', tool % (b"9" * length))
        yield Hostile(f"a parameter of {length} digits", CHAT_PATH, one, TAKEN)
    for byte in (b'"', b"[", b"]", b"{", b" ", b"\x00", b"\xff", b"\\", b",", b"-"):
        yield Hostile(f"{byte!r} only", TEXT_PATH, byte * size, REFUSED)
    backslashes = chat(chat_model, b'"%b"' % (b"\\" * (size - 200)))
    yield Hostile("backslashes", CHAT_PATH, backslashes, TAKEN)
    yield Hostile("surrogates", TEXT_PATH, text(text_model, b'"%b"' % (rb"\ud800" * 100_000)), REFUSED)


def _keys(size: int) -> bytes:
    return b"{%b}" % b",".join(b'"%07d":1' % number for number in range(size // 12))
