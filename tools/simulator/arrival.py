"""One request of a workload, before its simulation."""

from __future__ import annotations

import msgspec
import xxhash


class Arrival(msgspec.Struct, frozen=True):
    """The client's request, and the response length, which only the engine may know.

    blocks: ids of the prompt's whole blocks, chained, 16 bytes each: equal bytes mean equal prefixes.
    """

    at_s: float
    prompt_tokens: int
    output_tokens: int
    """The response's length; only the engine may read it."""
    blocks: tuple[bytes, ...] = ()
    answer_blocks: tuple[bytes, ...] = ()
    """Blocks of prompt and response together, if a later prompt contains the response."""
    organization_id: str = "organization"
    session_id: str = ""
    priority: int = 0
    share: float = 1.0
    """The share of its organization."""


def block_id(number: int, space: int = 0) -> bytes:
    """A block's id, as evenly distributed as a hash of text; equal numbers in different spaces are different blocks."""
    return xxhash.xxh3_128_digest(space.to_bytes(8, "big") + number.to_bytes(8, "big"))
