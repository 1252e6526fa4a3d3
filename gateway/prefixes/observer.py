"""Measures how much of each prompt was seen before, and why the rest was new. One per gateway process, all in memory.

A gateway knows only its own requests: if a tenant's requests reach several gateways, each finds less reusable text than
there was, never more. An engine may have evicted blocks that count as reusable here; the ledger has the tokens that it
actually reused.
"""

from __future__ import annotations

import msgspec

from contracts.generation import Caller
from contracts.prefix import BLOCK_BYTES, BLOCK_TOKENS, HASH_BYTES
from gateway.prefixes.difference import EVERY_REQUEST, HARMLESS, Cause, Difference, Part, difference
from gateway.prefixes.excerpt import Excerpt, excerpt, system_text
from gateway.prefixes.parts import Parts, Systems, split
from gateway.prefixes.sketch import Remembered, Sketch, Template
from gateway.prefixes.template import PrefixDigests
from gateway.wire.prepared import Prepared

LIMIT_BYTES = 64 * 1024 * 1024
"""Limit for all organizations together; the largest organization forgets first."""
FORGOTTEN_AT_ONCE_BYTES = 256 * 1024
"""Bytes that the largest organization forgets beyond the overshoot: eviction is rare, and takes less than 1 ms."""
EVERY_REQUEST_RUN = 3
"""Consecutive requests with new system prompts, after which each request counts as having its own."""
LIKE_LENGTH = 0.1
"""Two system prompts count as versions of one if their lengths differ by at most this part."""
TOKENS_PER_BLOCK = {"tokens": BLOCK_TOKENS, "bytes": BLOCK_BYTES // 3}
"""Tokens of a block; in bytes, as estimated by `gateway.wire.prepared.estimate`, like the prompt's own count."""


class Observed(msgspec.Struct, frozen=True):
    """A request that reached an engine."""

    request_id: str
    caller: Caller
    endpoint: str
    prepared: Prepared
    at_s: float
    """Time by any clock that does not go back."""
    texts_stored: bool = False
    """Whether its organization has turned on `store_prompts`."""


class PrefixSample(msgspec.Struct, frozen=True, gc=False):
    """One request's sample, by the columns of `gateway.prefix_samples`: digests and lengths, no text."""

    request_id: str
    organization_id: str
    project_id: str
    model: str
    tier: str
    endpoint: str
    template: str
    session_id: str
    """The first request of its conversation; the request's own id if it begins one."""
    turn: int
    prompt_tokens: int
    reusable_tokens: int
    """Tokens of the longest prefix in whole blocks that an earlier request of the organization and the model had."""
    differing_token: int | None
    """Start of the first new block; None if no whole block was new."""
    part: str | None
    part_number: int | None
    cause: str
    blocks: list[int]
    """One digest for each whole 512 tokens, under the deployment's key."""


class PrefixObserver:
    """Compares each request with those before it, in bounded memory."""

    def __init__(self, digests: PrefixDigests, limit_bytes: int = LIMIT_BYTES) -> None:
        self._digests = digests
        self._limit_bytes = limit_bytes
        self._systems = Systems()
        self._sketches: dict[str, Sketch] = {}
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._sketches)

    def observe(self, asked: Observed) -> PrefixSample:
        """Compare a request with those before it, and remember it."""
        return self.compare(asked)[0]

    def compare(self, asked: Observed) -> tuple[PrefixSample, Excerpt | None]:
        """The sample, and the texts at the difference if they may be stored and an author can fix the cause."""
        prepared, caller = asked.prepared, asked.caller
        generation, chain = prepared.generation, prepared.chain
        taken = split(generation.prompt, self._systems)
        sketch = self._sketches.setdefault(caller.organization_id, Sketch())
        before_bytes = sketch.size_bytes
        name = self._digests.template(caller.project_id, asked.endpoint, generation.model, taken)
        previous = next(reversed(sketch.templates.values()), None)
        name, template = sketch.template(name, asked.at_s)
        depth, closest = sketch.closest(chain.hashes)
        request = Remembered(taken.parts, system_text(generation.prompt) if asked.texts_stored else None)
        version = template.last is None and _version_of(previous, taken.parts)
        _count_systems(previous if version and previous else template, template, taken.parts)
        blocks = len(chain.hashes) // HASH_BYTES
        whole = depth == blocks
        # before `remember`: the comparison is with earlier requests
        earlier = closest or template.last or (previous.last if version and previous else None)
        if whole:
            found = Difference(Cause.WHOLE if blocks else Cause.TOO_SHORT)
        else:
            found = _why(earlier, taken.parts, template)
        sketch.remember(chain.hashes, request)
        sketch.used(template, request)
        session_id, turn = sketch.turn(taken.turns, asked.request_id)
        self.size_bytes += sketch.size_bytes - before_bytes
        self._forget()
        tokens = TOKENS_PER_BLOCK[chain.kind]
        sample = PrefixSample(
            asked.request_id,
            caller.organization_id,
            caller.project_id,
            generation.model,
            generation.tier.value,
            asked.endpoint,
            name,
            session_id,
            turn,
            prepared.prompt_tokens,
            min(depth * tokens, prepared.prompt_tokens),
            None if whole else min(depth * tokens, prepared.prompt_tokens),
            found.part.value if found.part else None,
            found.number,
            found.cause.value,
            self._digests.blocks(chain.kind, chain.hashes),
        )
        if not asked.texts_stored or found.cause in HARMLESS:
            return sample, None
        return sample, excerpt(found, None if earlier is None else earlier.system_text, generation.prompt)

    def _forget(self) -> None:
        while self.size_bytes > self._limit_bytes:
            name, largest = max(self._sketches.items(), key=lambda item: item[1].size_bytes)
            before_bytes = largest.size_bytes
            over_bytes = self.size_bytes - self._limit_bytes
            largest.forget(max(0, before_bytes - over_bytes - FORGOTTEN_AT_ONCE_BYTES))
            if not largest.size_bytes:
                del self._sketches[name]
            self.size_bytes += largest.size_bytes - before_bytes


def _count_systems(before: Template, template: Template, parts: Parts) -> None:
    if before.last is not None:
        same = before.last.parts.system.digest == parts.system.digest
        template.other_systems = 0 if same else before.other_systems + 1


def _why(earlier: Remembered | None, parts: Parts, template: Template) -> Difference:
    """The first difference and its cause. earlier: the request that shares the most blocks, or its template's last; or
    the tenant's last, if this is the first request of its template and looks like a version of it; or None."""
    if earlier is None:
        return Difference(Cause.FIRST)
    found = difference(earlier.parts, parts)
    if found.part is Part.SYSTEM and template.other_systems >= EVERY_REQUEST_RUN:
        return found._replace(cause=EVERY_REQUEST.get(found.cause, found.cause))
    return found


def _version_of(before: Template | None, later: Parts) -> bool:
    if before is None or before.last is None:
        return False
    earlier = before.last.parts
    if earlier.tools or later.tools:
        return not _words(earlier.tools).isdisjoint(_words(later.tools))
    one, other = earlier.system.characters, later.system.characters
    return bool(one and other) and abs(one - other) <= LIKE_LENGTH * max(one, other)


def _words(packed: bytes) -> set[bytes]:
    return {packed[at : at + 8] for at in range(0, len(packed), 8)}
