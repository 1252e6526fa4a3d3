"""Follows an engine's KV events (the format SGLang and vLLM share): which of our token blocks came and went.

Events speak the engine's own pages and hashes. The mirror keeps, for each page, where in our chain it lies: after which
whole blocks, and the tokens since. A page that completes one of our blocks gives us its hash. Only
prompts that reached the router as token ids can be compared, and only under a root that is known: the model's, and the
salt and the adapter that stand in the event. An engine whose events name no adapter would pass an adapter's blocks off
as the model's: once requests have had adapters there, blocks without one are believed only if it has named one.
Messages are numbered; a gap asks for a replay, and a restart begins anew.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import msgspec
import xxhash

from contracts.prefix import BLOCK_TOKENS, root

PATIENCE_MESSAGES = 1_000
"""So many messages are kept while a replay is awaited: then what was missed is given up."""
PAGES_LIMIT = 2_000_000
"""Pages remembered per replica; an engine with more is no longer followed beyond it."""


class Place(msgspec.Struct, frozen=True):
    """Where a page ends. Chains share their beginnings: `blocks` is a linked list, newest first."""

    digest: bytes
    """Hash of the last whole block, or the root."""
    blocks: tuple[Any, ...] | None
    """(hash, the blocks before it), or None at the root."""
    rest: tuple[int, ...]
    """Tokens after the last whole block."""


class Change(msgspec.Struct, frozen=True):
    """hashes: the chain up to a block that is now held; or, when `gone`, up to and with one that is not any more."""

    hashes: bytes
    gone: bool


EVERYTHING = Change(b"", True)


class KvMirror:
    """One replica's. model: the public name under which prompts are hashed. replays: it repeats what was missed."""

    def __init__(self, model: str, replays: bool = True) -> None:
        self._model = model
        self._replays = replays
        self._ahead: dict[int, bytes] = {}
        """Messages that came while a replay is awaited, by number: it may have been answered before they were sent."""
        self._places: dict[int | bytes, Place] = {}
        self.next_number = 0
        """Of the message expected next."""
        self._asked_from = -1
        self._page_tokens = 1
        self._newest_at = 0.0
        """The engine's own time of the last message taken in."""
        self._names_adapters = False
        """It has named one in an event."""

    def __len__(self) -> int:
        return len(self._places)

    def forget(self) -> None:
        """The engine has begun anew, or cleared its cache."""
        self._places.clear()

    def take(
        self, number: int, payload: bytes, repeated: bool, adapters: bool = False
    ) -> tuple[list[Change], int | None]:
        """Take in one message: what changed, and from which number a replay is needed (None: none).

        repeated: it comes from a replay. adapters: requests have had LoRA adapters there since it began. Raises
        msgspec.MsgspecError, ValueError, TypeError, LookupError, RecursionError for what is no message of this format.
        """
        at, events, *_ = msgspec.msgpack.decode(payload)
        changes: list[Change] = []
        if number < self.next_number:
            if repeated or at <= self._newest_at:
                return [], None
            # a lower number at a later time: the engine counts from the beginning again
            self.next_number, self._asked_from, self._names_adapters = 0, -1, False
            self._ahead.clear()
            self.forget()
            changes.append(EVERYTHING)
        if number > self.next_number and not repeated and self._replays and len(self._ahead) < PATIENCE_MESSAGES:
            self._ahead[number] = payload
            if self._asked_from == self.next_number:
                return changes, None
            self._asked_from = self.next_number
            return changes, self.next_number
        if number > self.next_number and self.next_number:
            # what lies between is no longer kept: whatever was removed there would stay for ever
            self._ahead = {later: kept for later, kept in self._ahead.items() if later > number}
            self.forget()
            changes.append(EVERYTHING)
        changes += self._in_turn(number, at, events, adapters)
        while (kept := self._ahead.pop(self.next_number, None)) is not None:
            at, events, *_ = msgspec.msgpack.decode(kept)
            changes += self._in_turn(self.next_number, at, events, adapters)
        return changes, None

    def _in_turn(self, number: int, at: float, events: Sequence[Any], adapters: bool) -> list[Change]:
        self._ahead.pop(number, None)
        self.next_number, self._newest_at = number + 1, at
        return [change for event in events for change in self._event(event, adapters)]

    def _event(self, event: Any, adapters: bool) -> list[Change]:
        kind = event["type"] if isinstance(event, dict) else event[0]
        if kind == "AllBlocksCleared":
            self.forget()
            return [EVERYTHING]
        if kind == "BlockRemoved":
            hashes = event["block_hashes"] if isinstance(event, dict) else event[1]
            return [change for page in hashes if (change := self._removed(page)) is not None]
        if kind != "BlockStored":
            return []
        stored = _Stored.of(event)
        self._names_adapters |= bool(stored.adapter)
        if adapters and not self._names_adapters:
            return []  # whose it is cannot be told
        change = self._stored(stored)
        return [] if change is None else [change]

    def _stored(self, event: _Stored) -> Change | None:
        place = self._places.get(event.parent) if event.parent is not None else None
        if place is None:
            if event.parent is not None:
                return None  # stored before we listened, or lost
            place = Place(root(self._model, event.adapter, salt=event.salt), None, ())
        deepest = None
        self._page_tokens = event.page_tokens
        for at, page in enumerate(event.hashes):
            tokens = (*place.rest, *event.tokens[at * event.page_tokens : (at + 1) * event.page_tokens])
            digest, blocks = place.digest, place.blocks
            while len(tokens) >= BLOCK_TOKENS:
                digest = xxhash.xxh3_128_digest(digest + array("I", tokens[:BLOCK_TOKENS]).tobytes())
                blocks = (digest, blocks)
                tokens = tokens[BLOCK_TOKENS:]
                deepest = blocks
            place = Place(digest, blocks, tokens)
            if len(self._places) < PAGES_LIMIT:
                self._places[page] = place
        return None if deepest is None else Change(_chain(deepest), False)

    def _removed(self, page: int | bytes) -> Change | None:
        """A page takes every block with it that it touches, whether or not the event says so."""
        place = self._places.pop(page, None)
        if place is None or place.blocks is None or len(place.rest) >= self._page_tokens:
            return None  # it lies wholly inside a block that is not complete yet
        first = place.blocks
        for _ in range((self._page_tokens - len(place.rest) - 1) // BLOCK_TOKENS):
            _, first = first  # a page may be longer than our blocks: 128 tokens of vLLM's on a CPU
        return Change(_chain(first), True)


class _Stored(msgspec.Struct, frozen=True):
    hashes: Sequence[int | bytes]
    parent: int | bytes | None
    tokens: Sequence[int]
    page_tokens: int
    salt: str
    adapter: str
    """The engine's name for it; empty: none."""

    @classmethod
    def of(cls, event: Any) -> _Stored:
        """From an array or a map: both are in use. SGLang's maps say the salt, other events have extra keys."""
        if isinstance(event, dict):
            hashes, parent = event["block_hashes"], event.get("parent_block_hash")
            tokens, size = event["token_ids"], event["block_size"]
            salt = event.get("cache_salt")
            extra = [[salt]] if salt else event.get("extra_keys")
            adapter = event.get("lora_name")
        else:
            hashes, parent, tokens, size = event[1:5]
            extra = event[8] if len(event) > 8 else None
            adapter = event[7] if len(event) > 7 else None
        if not isinstance(adapter, str | None):
            raise TypeError(adapter)
        keys = list(extra[0] or ()) if extra else []
        if adapter and keys[:1] == [adapter]:
            del keys[0]  # vLLM has it there too, and the salt behind it
        salt = keys[0] if keys and isinstance(keys[0], str) else ""
        return cls(hashes, parent, tokens, size, salt, adapter or "")


def _chain(blocks: tuple[Any, ...] | None) -> bytes:
    hashes = []
    while blocks is not None:
        digest, blocks = blocks
        hashes.append(digest)
    return b"".join(reversed(hashes))
