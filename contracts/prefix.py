"""Turns a prompt into a chain of block hashes, so that the router can match prefixes without seeing text.

    root = hash(model, adapter, template, salt)
    h[0] = hash(root, block 0);  h[i] = hash(h[i-1], block i)

Two prompts share exactly as many leading hashes as they share leading whole blocks under one root. Blocks are bytes of
the text in the order the chat template renders it (tools, system, messages), or token ids where the prompt is ids.
Only token chains can be compared with an engine's KV events.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Literal

import msgspec
import xxhash

from contracts.generation import ChatPrompt, Generation, TextPrompt

HASH_BYTES = 16
BLOCK_BYTES = 256
BLOCK_TOKENS = 64
MAX_BLOCKS = 2_048
"""Longest chain sent to the router: 512 kB of text. A longer prompt is placed by its first blocks."""


class PrefixChain(msgspec.Struct, frozen=True):
    """hashes: `HASH_BYTES` for each whole block, first to last, joined: one object for a long prompt."""

    kind: Literal["bytes", "tokens"]
    hashes: bytes

    def __len__(self) -> int:
        return len(self.hashes) // HASH_BYTES

    def block(self, index: int) -> bytes:
        """The hash of one block."""
        return self.hashes[index * HASH_BYTES : (index + 1) * HASH_BYTES]

    def shared_blocks(self, other: PrefixChain) -> int:
        """Length of the common prefix, in blocks."""
        if self.kind != other.kind:
            return 0
        count = 0
        while count < min(len(self), len(other)) and self.block(count) == other.block(count):
            count += 1
        return count


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
    return PrefixChain("tokens", _chain(start, array("I", ids).tobytes(), BLOCK_TOKENS * 4))


def of_generation(generation: Generation, template: str = "") -> PrefixChain:
    """The chain of a request; of its first prompt where it has several."""
    start = root(generation.model, template=template, salt=generation.cache_salt)
    if isinstance(generation.prompt, TextPrompt):
        first = generation.prompt.prompts[0] if generation.prompt.prompts else ""
        if isinstance(first, str):
            return chain_bytes(start, first.encode("utf-8", "surrogatepass"))
        return chain_tokens(start, first)
    return chain_bytes(start, _rendered(generation.prompt))


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
