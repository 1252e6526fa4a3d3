"""How chains compare, block by block: what tests hold the router's index and the gateway's chains against."""

from __future__ import annotations

from contracts.prefix import HASH_BYTES, PrefixChain, block_hashes


def length(chain: PrefixChain) -> int:
    """In blocks."""
    return len(chain.hashes) // HASH_BYTES


def shared_blocks(one: PrefixChain, other: PrefixChain) -> int:
    """Length of the common prefix, in blocks."""
    if one.kind != other.kind:
        return 0
    pairs = list(zip(block_hashes(one.hashes), block_hashes(other.hashes), strict=False))
    return next((at for at, (left, right) in enumerate(pairs) if left != right), len(pairs))
