"""Converts a Tabby agent's description of a file to a gap."""

from __future__ import annotations

import hashlib

from contracts.generation import Caller
from gateway.wire.fill.prepare import prepare_fill
from gateway.wire.fill.request import FillRequest
from gateway.wire.gap import Snippet
from gateway.wire.prepared import Prepared, Target
from gateway.wire.tabby.schema import Segments, SegmentsRequest

MAX_TOKENS = 64
"""Tabby's own limit, if a request has none."""
TEMPERATURE = 0.1
"""Tabby's own temperature, if a request has none."""


async def prepare_segments(
    asked: SegmentsRequest, request_id: str, caller: Caller, salt: str, target: Target
) -> Prepared:
    """Raises a RequestError that names the field."""
    segments = asked.segments
    gap = FillRequest(
        model=asked.model,
        prefix=segments.prefix,
        suffix=segments.suffix or "",
        snippets=snippets(segments),
        path=segments.filepath or "",
        language=asked.language or "",
        max_tokens=asked.max_tokens or MAX_TOKENS,
        temperature=TEMPERATURE if asked.temperature is None else asked.temperature,
        seed=asked.seed,
        min_confidence=asked.min_confidence,
        session=asked.user or _file(segments),
    )
    return await prepare_fill(gap, request_id, caller, salt, target)


def _file(segments: Segments) -> str:
    """The common identity of one file's requests, or empty if the client sends none; no name leaves the gateway."""
    if not segments.filepath:
        return ""
    named = f"{segments.git_url or ''}\n{segments.filepath}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(named, digest_size=16).hexdigest()


def snippets(segments: Segments) -> tuple[Snippet, ...]:
    """Parts that change least between two keystrokes come first, so that they stay in the engine's cache; repeated
    texts are dropped."""
    opened = segments.relevant_snippets_from_recently_opened_files or ()
    changed = segments.relevant_snippets_from_changed_files or ()
    found = [Snippet(snippet.filepath, snippet.body) for snippet in (*opened, *changed, *(segments.declarations or ()))]
    found.append(Snippet("", segments.clipboard or ""))
    unique: dict[str, Snippet] = {}
    for snippet in found:
        if snippet.text.strip():
            unique.setdefault(snippet.text, snippet)
    return tuple(unique.values())
