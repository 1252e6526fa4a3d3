"""What groups a tenant's requests: the endpoint, the model, the names of the tools, and how the system prompt opens.

The opening is looked at with its dates, times, numbers and identifiers made alike: a date in the first line does not
make each day another template. Neither tools' order nor what they say counts, nor anything of the user's: two
applications of one project with the same opening are one template, which costs nothing, as each prompt is compared with
the one it has most in common with. A system prompt whose opening was rewritten is another template.
"""

from __future__ import annotations

import hmac
from hashlib import blake2b

from contracts.prefix import HASH_BYTES
from gateway.prefixes.parts import Split

DIGEST_BYTES = 8
SAMPLE_TOKENS = 512
"""Of a block whose digest is kept: as in Mooncake's traces."""
BLOCKS_PER_SAMPLE = {"tokens": 8, "bytes": 6}
"""Of the chain's blocks: 64 tokens each, or 256 bytes, which are estimated at 85."""


class PrefixDigests:
    """Digests under a key of the deployment's, for what is stored: without it nobody can try out what a block may have
    said. The chain's own hashes are not stored, for each says all about the next block but its text."""

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
        """One number for each whole 512 tokens of a chain; equal ones are equal prefixes."""
        size = BLOCKS_PER_SAMPLE[kind] * HASH_BYTES
        return [self._number(hashes[end - HASH_BYTES : end]) for end in range(size, len(hashes) + 1, size)]

    def _number(self, block: bytes) -> int:
        return int.from_bytes(blake2b(block, key=self._key, digest_size=DIGEST_BYTES).digest(), "big", signed=True)
