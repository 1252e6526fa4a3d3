"""One request of a workload, before anything has happened to it."""

from __future__ import annotations

import msgspec
import xxhash


class Arrival(msgspec.Struct, frozen=True):
    """What a client will send, and what only the engine will find out.

    blocks: the prompt's whole blocks, chained, 16 bytes each: equal bytes are equal prefixes.
    """

    at_s: float
    prompt_tokens: int
    output_tokens: int
    """The answer's length; nobody but the engine may look at it."""
    blocks: tuple[bytes, ...] = ()
    answer_blocks: tuple[bytes, ...] = ()
    """Those of prompt and answer together, where the answer comes back in a later prompt."""
    organization_id: str = "organization"
    session_id: str = ""
    priority: int = 0
    share: float = 1.0
    """Of its organization, among organizations."""


def block_id(number: int, space: int = 0) -> bytes:
    """A block's name, as evenly spread as a hash of text; equal numbers in different spaces are different blocks."""
    return xxhash.xxh3_128_digest(space.to_bytes(8, "big") + number.to_bytes(8, "big"))
