"""Splits a conversation into its system prompt, tools and messages, as digests and lengths. No text is kept.

The digests stay in this process's memory and are not keyed: they only show whether two parts are equal.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import msgspec
import xxhash

from contracts.generation import ChatPrompt, TextPrompt
from gateway.prefixes.masks import undated, unvalued

MAX_PARTS = 128
"""Limit of the tools, and of the messages, that are compared one by one: the first of longer lists."""
MAX_MESSAGES = 1_024
"""Limit of a conversation's messages. A longer one is not recognized again, and only its first parts are compared: one
request may take at most a millisecond here."""
OPENING_CHARACTERS = 64
"""Characters of a system prompt, with dates and values masked, that identify its template."""
SYSTEMS_KNOWN = 1_024
"""Limit of the system prompts whose digests are remembered."""
DIGEST_BYTES = 8
NONE = 0


class System(msgspec.Struct, frozen=True, gc=False):
    """A system prompt. digest: 0 if there is none."""

    digest: int = NONE
    characters: int = 0
    undated: int = NONE
    """Digest with dates and times masked."""
    unvalued: int = NONE
    """Digest with numbers and identifiers masked as well."""
    opening: str = ""
    """Digest of the first `OPENING_CHARACTERS`, with both masked."""


class Parts(msgspec.Struct, frozen=True, gc=False):
    """Digests by which two prompts are compared. tools, messages: eight bytes for each; lengths: four for each
    message."""

    system: System = System()
    tools: bytes = b""
    messages: bytes = b""
    """The messages after the system prompt."""
    lengths: bytes = b""
    """Lengths of the messages as JSON, in bytes."""

    @property
    def size_bytes(self) -> int:
        """Approximate size in memory."""
        return 300 + len(self.tools) + len(self.messages) + len(self.lengths)


class Split(msgspec.Struct, frozen=True, gc=False):
    """A split prompt. tool_names: sorted. turns: for each message, the digest of all messages up to it, newest last;
    empty for a text and for a conversation that is too long."""

    parts: Parts
    tool_names: tuple[str, ...]
    turns: tuple[int, ...]


class Systems:
    """Known system prompts, bounded: most requests have one that was masked before."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, System] = OrderedDict()

    def of(self, text: str) -> System:
        """The digests of a system prompt."""
        digest = _digest(text)
        known = self._known.get(digest)
        if known is None:
            dateless = undated(text)
            valueless = unvalued(dateless)
            opening = f"{_digest(valueless[:OPENING_CHARACTERS]):016x}"
            known = self._known[digest] = System(digest, len(text), _digest(dateless), _digest(valueless), opening)
            if len(self._known) > SYSTEMS_KNOWN:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(digest)
        return known


def split(prompt: ChatPrompt | TextPrompt, systems: Systems) -> Split:
    """Split a prompt into parts. A text is one message: its structure is unknown."""
    if isinstance(prompt, TextPrompt):
        first = prompt.prompts[0] if prompt.prompts else ""
        encoded = first.encode("utf-8", "surrogatepass") if isinstance(first, str) else array("q", first).tobytes()
        return Split(Parts(messages=_packed([xxhash.xxh3_64_intdigest(encoded)]), lengths=_lengths([encoded])), (), ())
    messages = prompt.messages
    leading = messages[0] if messages and messages[0].get("role") == "system" else None
    following = messages if leading is None else messages[1:]
    encoder = msgspec.json.Encoder()
    whole = len(following) <= MAX_MESSAGES
    encoded_messages = [encoder.encode(message) for message in (following if whole else following[:MAX_PARTS])]
    digests = [xxhash.xxh3_64_intdigest(message) for message in encoded_messages]
    tools = prompt.tools or ()
    parts = Parts(
        system=System() if leading is None else systems.of(text_of(leading.get("content"))),
        tools=_packed(xxhash.xxh3_64_intdigest(encoder.encode(tool)) for tool in tools[:MAX_PARTS]),
        messages=_packed(digests[:MAX_PARTS]),
        lengths=_lengths(encoded_messages[:MAX_PARTS]),
    )
    names = tuple(sorted(str(tool.get("function", {}).get("name", "")) for tool in tools[:MAX_PARTS]))
    return Split(parts, names, _turns(digests) if whole else ())


def digests_of(packed: bytes) -> list[int]:
    """The packed digests as numbers."""
    return memoryview(packed).cast("Q").tolist()


def lengths_of(packed: bytes) -> list[int]:
    """The packed lengths as numbers."""
    return memoryview(packed).cast("I").tolist()


def _turns(digests: Iterable[int]) -> tuple[int, ...]:
    """Digests of the messages up to each. The system prompt is left out, because its date may change between turns."""
    running = xxhash.xxh3_64()
    turns = []
    for digest in digests:
        running.update(digest.to_bytes(8, "big"))
        turns.append(running.intdigest())
    return tuple(turns)


def text_of(content: Any) -> str:
    """The text of a message's content, in any of its forms."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list | tuple) else ()
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))


def _digest(text: str) -> int:
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))


def _packed(digests: Iterable[int]) -> bytes:
    return array("Q", digests).tobytes()


def _lengths(encoded: Iterable[bytes]) -> bytes:
    return array("I", (len(each) for each in encoded)).tobytes()
