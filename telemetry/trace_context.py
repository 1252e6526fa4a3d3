"""The trace of a request, and W3C's header for it (https://www.w3.org/TR/trace-context/)."""

from __future__ import annotations

import random
import re

import msgspec

HEADER_CHARACTERS = 512
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_SAMPLED = 1
STATE_CHARACTERS, STATE_MEMBERS = 512, 32
_MEMBER = re.compile(r"[a-z0-9][a-z0-9_\-*/@]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{1,256}", re.ASCII)


class SpanId(msgspec.Struct, frozen=True, gc=False):
    """A span of another process, from its `traceparent`."""

    trace_id: str
    """32 hexadecimal digits."""
    span_id: str
    """16 hexadecimal digits."""
    sampled: bool


class TraceContext(msgspec.Struct, frozen=True, gc=False):
    """A request's position in a trace, in one process."""

    trace_id: str
    span_id: str
    """The process's own span, the parent of its others."""
    sampled: bool
    """Whether spans are made for it."""
    parent_id: str = ""
    """The caller's span; empty for the first of a trace."""
    state: str = ""
    """The client's `tracestate`: other systems' data, carried along in spans."""

    @property
    def known_elsewhere(self) -> bool:
        """Whether the trace exists somewhere: this process makes spans of it, or its client does."""
        return self.sampled or bool(self.parent_id)

    def traceparent(self, span_id: str = "") -> str:
        """The header for a request sent from a span, by default the process's own."""
        return f"00-{self.trace_id}-{span_id or self.span_id}-{'01' if self.sampled else '00'}"


def parse(traceparent: str) -> SpanId | None:
    """Parse the header. None if it is absent or malformed: the standard then ignores it."""
    match = _TRACEPARENT.fullmatch(traceparent) if len(traceparent) <= HEADER_CHARACTERS else None
    if match is None:
        return None
    version, trace_id, span_id, flags, rest = match.groups()
    # a later version may have more fields; its flags keep at least their current meaning
    if version == "ff" or (rest and version == "00") or trace_id == "0" * 32 or span_id == "0" * 16:
        return None
    return SpanId(trace_id, span_id, bool(int(flags, 16) & _SAMPLED))


def parse_state(tracestate: str) -> str:
    """The `tracestate` unchanged, or "" if it is malformed, or longer than the standard requires to carry."""
    if len(tracestate) > STATE_CHARACTERS:
        return ""
    members = [member.strip(" \t") for member in tracestate.split(",")]
    fits = len(members) <= STATE_MEMBERS and all(not member or _MEMBER.fullmatch(member) for member in members)
    return tracestate if fits else ""


def new_trace_id() -> str:
    """A random id: no secret, and only unlikely to repeat."""
    return f"{random.getrandbits(128) or 1:032x}"


def new_span_id() -> str:
    """A random id, like `new_trace_id`."""
    return f"{random.getrandbits(64) or 1:016x}"
