"""Turns a prompt into a chain of block hashes, so that the router can match prefixes without seeing text.

    root = hash(model, adapter, template, salt)
    h[0] = hash(root, block 0);  h[i] = hash(h[i-1], block i)

Under one root, two prompts share exactly as many leading hashes as leading whole blocks. If the gateway can render and
tokenize a prompt like the engine, blocks are token ids, and the chain matches the possible contents of the engine's
cache. Otherwise blocks are bytes of the request in the usual order (tools, messages), independent of the template. Only
token chains can be compared with an engine's KV events.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import xxhash

from contracts.generation import ChatPrompt, Generation, TextPrompt

HASH_BYTES = 16
BLOCK_BYTES = 256
BLOCK_TOKENS = 64
MAX_BLOCKS = 2_048
"""Longest chain sent to the router: 512 kB of text. A longer prompt is placed by its first blocks."""


class PrefixChain(msgspec.Struct, frozen=True):
    """A chain of block hashes. hashes: `HASH_BYTES` for each whole block, first to last, joined into one object."""

    kind: Literal["bytes", "tokens"]
    hashes: bytes


def block_hashes(hashes: bytes) -> list[bytes]:
    """Split a chain's joined hashes into a list."""
    return [hashes[at : at + HASH_BYTES] for at in range(0, len(hashes), HASH_BYTES)]


def root(model: str, adapter: str = "", template: str = "", salt: str = "") -> bytes:
    """The chain's root. Each part is length-prefixed: ("a", "bc") and ("ab", "c") must differ."""
    hasher = xxhash.xxh3_128()
    for part in (model, adapter, template, salt):
        encoded = part.encode()
        hasher.update(len(encoded).to_bytes(4, "big"))
        hasher.update(encoded)
    return hasher.digest()


def chain_bytes(start: bytes, text: bytes) -> PrefixChain:
    """Chain over whole blocks of `BLOCK_BYTES` bytes; a partial last block has no hash."""
    return PrefixChain("bytes", _chain(start, text, BLOCK_BYTES))


def chain_tokens(start: bytes, ids: Sequence[int]) -> PrefixChain:
    """Chain over whole blocks of `BLOCK_TOKENS` token ids, four bytes each."""
    return PrefixChain(
        "tokens", _chain(start, array("I", ids[: MAX_BLOCKS * BLOCK_TOKENS]).tobytes(), BLOCK_TOKENS * 4)
    )


def of_generation(generation: Generation, ids: Sequence[int] | None = None) -> PrefixChain:
    """The chain of a request's prompt, or of its first prompt if it has several.

    ids: the conversation as rendered and encoded for the model. The ids do not include images: two conversations that
    differ only in an image would seem equal, so the ids are not used if a message holds more than text.
    """
    adapter = "" if generation.adapter is None else generation.adapter.engine_name
    start = root(generation.model, adapter, salt=generation.cache_salt)
    if isinstance(generation.prompt, TextPrompt):
        first = generation.prompt.prompts[0] if generation.prompt.prompts else ""
        if isinstance(first, str):
            return chain_bytes(start, first.encode("utf-8", "surrogatepass"))
        return chain_tokens(start, first)
    if ids is not None and not any(holds_more_than_text(message) for message in generation.prompt.messages):
        return chain_tokens(start, ids)
    return chain_bytes(start, _rendered(generation.prompt))


def holds_more_than_text(message: dict[str, Any]) -> bool:
    """Whether a message has parts, such as images, that its tokens do not distinguish."""
    content = message.get("content")
    return isinstance(content, list | tuple) and any(part.get("type") != "text" for part in content)


def _rendered(prompt: ChatPrompt) -> bytes:
    """Tools, then messages, in template order. Keys are sorted: clients of one application may order them freely."""
    parts = [msgspec.json.encode(prompt.tools, order="sorted")] if prompt.tools else []
    parts += [msgspec.json.encode(message, order="sorted") for message in prompt.messages]
    return b"\n".join(parts)


def _chain(previous: bytes, data: bytes, block: int) -> bytes:
    hashes = []
    for start in range(0, min(len(data) - block, block * (MAX_BLOCKS - 1)) + 1, block):
        previous = xxhash.xxh3_128_digest(previous + data[start : start + block])
        hashes.append(previous)
    return b"".join(hashes)
