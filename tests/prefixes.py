"""Prefix chains as tests compare them."""

from __future__ import annotations

from contracts.prefix import HASH_BYTES, PrefixChain


def blocks(chain: PrefixChain) -> list[bytes]:
    """The hash of every block."""
    return [chain.hashes[at : at + HASH_BYTES] for at in range(0, len(chain.hashes), HASH_BYTES)]


def shared_blocks(one: PrefixChain, other: PrefixChain) -> int:
    """Length of the common prefix, in blocks."""
    if one.kind != other.kind:
        return 0
    ours, theirs = blocks(one), blocks(other)
    count = 0
    while count < min(len(ours), len(theirs)) and ours[count] == theirs[count]:
        count += 1
    return count
