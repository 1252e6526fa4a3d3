"""Groups a tenant's requests into templates: by endpoint, model, tools' names and the opening of the system prompt.

Dates, times, numbers and identifiers in the opening are masked, so that a date in the first line does not make a new
template each day. Tools' order and descriptions do not count, nor does any text of the user. Two applications of one
project with the same opening are one template, which is harmless, because each prompt is compared with its closest one.
A system prompt with a rewritten opening is another template.
"""

from __future__ import annotations

import hmac
from hashlib import blake2b

from contracts.prefix import HASH_BYTES
from gateway.prefixes.parts import Split

DIGEST_BYTES = 8
SAMPLE_TOKENS = 512
"""Tokens of a block whose digest is kept; the size in Mooncake's traces."""
BLOCKS_PER_SAMPLE = {"tokens": 8, "bytes": 6}
"""Blocks of the chain per sample: blocks of 64 tokens, or of 256 bytes, which are estimated at 85 tokens."""


class PrefixDigests:
    """Digests for storage, with a key of the deployment: without it, a guessed text cannot be checked against a block.
    The chain's own hashes are not stored, because each is the whole context for guessing the next block's text."""

    def __init__(self, secret: bytes) -> None:
        self._key = hmac.digest(secret, b"prefix-samples", "sha256")

    def template(self, project_id: str, endpoint: str, model: str, split: Split) -> str:
        """A template's name, in 16 hex digits; the same at every gateway of the deployment."""
        hasher = blake2b(key=self._key, digest_size=DIGEST_BYTES)
        for part in (project_id, endpoint, model, split.parts.system.opening, *split.tool_names):
            encoded = part.encode("utf-8", "surrogatepass")
            hasher.update(len(encoded).to_bytes(4, "big"))
            hasher.update(encoded)
        return hasher.hexdigest()

    def blocks(self, kind: str, hashes: bytes) -> list[int]:
        """One number for each whole 512 tokens of a chain; equal numbers mean equal prefixes."""
        size = BLOCKS_PER_SAMPLE[kind] * HASH_BYTES
        return [self._number(hashes[end - HASH_BYTES : end]) for end in range(size, len(hashes) + 1, size)]

    def _number(self, block: bytes) -> int:
        return int.from_bytes(blake2b(block, key=self._key, digest_size=DIGEST_BYTES).digest(), "big", signed=True)
