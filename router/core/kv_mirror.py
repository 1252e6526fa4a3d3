"""Follows an engine's KV events (the format SGLang and vLLM share): which of our token blocks were stored and removed.

Events speak the engine's own pages and hashes. The mirror keeps, for each page, its position in our chain: the whole
blocks before it, and the tokens since. A page that completes one of our blocks gives us its hash. Only prompts that
reached the router as token ids can be compared, and only under a known root: the model's, and the salt and the adapter
that stand in the event. An engine whose events name no adapter would pass an adapter's blocks off as the model's: once
requests have had adapters there, blocks without one are believed only if the engine has named one before. Messages are
numbered; a gap asks for a replay, and a restart begins again. A publisher is believed only about its own cache:
unreadable events are left out, and a message costs its own length, not that of the chains it refers to.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import xxhash

from contracts.prefix import BLOCK_TOKENS, HASH_BYTES, MAX_BLOCKS, root

PATIENCE_MESSAGES = 1_000
"""Messages kept while a replay is awaited; beyond it the missed ones are given up."""
PATIENCE_BYTES = 32 << 20
"""Bytes of messages kept likewise. A replay is answered within a few steps of the engine, and the largest step has 2 MB
of events."""
PAGES_LIMIT = 2_000_000
"""Pages remembered per replica; pages beyond it are not followed."""


TOKEN_BYTES = 4
BLOCK_BYTES = BLOCK_TOKENS * TOKEN_BYTES
SEGMENT_BLOCKS = 32
"""Blocks whose hashes are kept joined, so that the longest chain is assembled from some 90 segments, not 2,048."""
UNREADABLE = (msgspec.MsgspecError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError)
"""Exceptions raised by reading data that is not of this format."""


class _Message(msgspec.Struct, frozen=True, array_like=True):
    at: float
    """Time by the engine's own clock."""
    events: list[Any]


class Chain(msgspec.Struct, frozen=True):
    """Whole blocks from a root on. Chains share their prefixes: a linked list, newest first."""

    count: int
    """Number of its blocks."""
    piece: bytes
    """Hash of the last block; where `count` is whole segments, the hashes of the last segment."""
    before: Chain | None
    """The chain before `piece`."""

    @property
    def hashes(self) -> bytes:
        """Hashes of all its blocks, first to last, joined."""
        return b"".join(reversed([chain.piece for chain in _back(self)]))


class Place(msgspec.Struct, frozen=True):
    """The end position of a page."""

    digest: bytes
    """Hash of the last whole block, or the root."""
    chain: Chain | None
    """The chain up to that block; None at the root."""
    rest: bytes
    """Tokens after that block, four bytes each."""


class Change(msgspec.Struct, frozen=True):
    """A change to the first `blocks` of a chain: the last of them is now held, or, when `gone`, no longer held. No
    chain: nothing is held any more."""

    chain: Chain | None
    blocks: int
    gone: bool

    @property
    def hashes(self) -> bytes:
        """Hashes of these blocks, assembled on demand: a message's changes have long chains in common."""
        return b"" if self.chain is None else self.chain.hashes[: self.blocks * HASH_BYTES]


EVERYTHING = Change(None, 0, True)


class KvMirror:
    """The mirror of one replica. model: the public name under which prompts are hashed. replays: the engine repeats
    missed messages."""

    def __init__(self, model: str, replays: bool = True) -> None:
        self._model = model
        self._replays = replays
        self._ahead: dict[int, bytes] = {}
        """Messages that came while a replay is awaited, by number: the replay may have been answered before they were
        sent."""
        self._ahead_bytes = 0
        self._places: dict[int | bytes, Place] = {}
        self.next_number = 0
        """Number of the next message expected."""
        self.taken_bytes = 0
        """Bytes of all messages applied in order."""
        self._asked_from = -1
        self._page_tokens = 1
        self._newest_at = 0.0
        """The engine's own time of the last applied message."""
        self._names_adapters = False
        """An event has named an adapter."""

    def __len__(self) -> int:
        return len(self._places)

    def forget(self) -> None:
        """The engine has restarted, or cleared its cache."""
        self._places.clear()

    def take(
        self, number: int, payload: bytes, repeated: bool, adapters: bool = False
    ) -> tuple[list[Change], int | None]:
        """Process one message. Returns the changes, and the number from which a replay is needed (None: none).

        repeated: it comes from a replay. adapters: requests have had LoRA adapters there since it began. An event that
        cannot be read is left out; raises UNREADABLE for a message that is not of this format.
        """
        message = msgspec.msgpack.decode(payload, type=_Message)
        changes: list[Change] = []
        if number < self.next_number:
            if repeated or message.at <= self._newest_at:
                return [], None
            # a lower number at a later time: the engine counts from the beginning again
            self.next_number, self._asked_from, self._names_adapters = 0, -1, False
            self._drop_ahead(-1)
            self.forget()
            changes.append(EVERYTHING)
        if number > self.next_number and not repeated and self._replays and self._keep_ahead(number, payload):
            if self._asked_from == self.next_number:
                return changes, None
            self._asked_from = self.next_number
            return changes, self.next_number
        if number > self.next_number and self.next_number:
            # messages in between are no longer kept: blocks removed there would stay forever
            self._drop_ahead(number)
            self.forget()
            changes.append(EVERYTHING)
        changes += self._in_turn(number, payload, message, adapters)
        while (kept := self._ahead.get(self.next_number)) is not None:
            message = msgspec.msgpack.decode(kept, type=_Message)
            changes += self._in_turn(self.next_number, kept, message, adapters)
        return changes, None

    def _keep_ahead(self, number: int, payload: bytes) -> bool:
        """Returns whether there was room for the message."""
        total_bytes = self._ahead_bytes - len(self._ahead.get(number, b"")) + len(payload)
        if len(self._ahead) >= PATIENCE_MESSAGES or total_bytes > PATIENCE_BYTES:
            return False
        self._ahead[number], self._ahead_bytes = payload, total_bytes
        return True

    def _drop_ahead(self, number: int) -> None:
        """Drop all kept messages up to this number; -1: all."""
        self._ahead = {} if number < 0 else {later: kept for later, kept in self._ahead.items() if later > number}
        self._ahead_bytes = sum(map(len, self._ahead.values()))

    def _in_turn(self, number: int, payload: bytes, message: _Message, adapters: bool) -> list[Change]:
        self._ahead_bytes -= len(self._ahead.pop(number, b""))
        self.next_number, self._newest_at = number + 1, message.at
        self.taken_bytes += len(payload)
        changes: list[Change] = []
        for event in message.events:
            try:
                self._event(event, adapters, changes)
            except UNREADABLE:
                continue  # another format, or torn: the other events are intact
        return changes

    def _event(self, event: Any, adapters: bool, changes: list[Change]) -> None:
        kind = event["type"] if isinstance(event, dict) else event[0]
        if kind == "AllBlocksCleared":
            self.forget()
            changes.append(EVERYTHING)
        elif kind == "BlockRemoved":
            for page in event["block_hashes"] if isinstance(event, dict) else event[1]:
                if (change := self._removed(page)) is not None:
                    changes.append(change)
        elif kind == "BlockStored":
            stored = _Stored.of(event)
            self._names_adapters |= bool(stored.adapter)
            if not adapters or self._names_adapters:  # otherwise the owner of the block is unknown
                self._stored(stored, changes)

    def _stored(self, event: _Stored, changes: list[Change]) -> None:
        place = self._places.get(event.parent) if event.parent is not None else None
        if place is None:
            if event.parent is not None:
                return  # stored before the router listened, or lost
            place = Place(root(self._model, event.adapter, salt=event.salt), None, b"")
        tokens = array("I", event.tokens).tobytes()
        self._page_tokens = event.page_tokens
        page_bytes = event.page_tokens * TOKEN_BYTES
        above = place.chain
        for at, page in enumerate(event.hashes):
            if _blocks(place.chain) == MAX_BLOCKS:
                break  # no prompt is compared beyond it
            place = _after(place, tokens[at * page_bytes : (at + 1) * page_bytes])
            if len(self._places) < PAGES_LIMIT:
                self._places[page] = place
        if place.chain is above:
            return
        if above is not None and changes and changes[-1].chain is above and not changes[-1].gone:
            changes.pop()  # engines report page by page: an owner of the longer chain holds this one
        changes.append(Change(place.chain, _blocks(place.chain), False))

    def _removed(self, page: int | bytes) -> Change | None:
        """A page removes every block that it touches, whether or not the event lists it."""
        place = self._places.pop(page, None)
        if place is None:
            return None
        whole = _blocks(place.chain)
        # a page may be longer than a router block: vLLM has 128 tokens on a CPU
        begins_at = whole * BLOCK_TOKENS + len(place.rest) // TOKEN_BYTES - self._page_tokens
        touched = max(begins_at, 0) // BLOCK_TOKENS
        # otherwise the page lies wholly inside an incomplete block
        return Change(place.chain, touched + 1, True) if touched < whole else None


class _Stored(msgspec.Struct, frozen=True):
    hashes: Sequence[int | bytes]
    parent: int | bytes | None
    tokens: Sequence[int]
    page_tokens: int
    salt: str
    adapter: str
    """The engine's name for the adapter; empty: none."""

    @classmethod
    def of(cls, event: Any) -> _Stored:
        """From an array or a map: both are in use. SGLang's maps carry the salt, other events have extra keys."""
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
        if not isinstance(size, int) or size < 1:
            raise ValueError(size)
        keys = list(extra[0] or ()) if extra else []
        if adapter and keys[:1] == [adapter]:
            del keys[0]  # vLLM has the adapter there too, followed by the salt
        salt = keys[0] if keys and isinstance(keys[0], str) else ""
        return cls(hashes, parent, tokens, size, salt, adapter or "")


def _after(place: Place, tokens: bytes) -> Place:
    """The end position of a page with these tokens that begins at a position."""
    digest, chain, rest = place.digest, place.chain, place.rest + tokens
    whole = min(len(rest) // BLOCK_BYTES, MAX_BLOCKS - _blocks(chain)) * BLOCK_BYTES
    for at in range(0, whole, BLOCK_BYTES):
        digest = xxhash.xxh3_128_digest(digest + rest[at : at + BLOCK_BYTES])
        chain = _longer(chain, digest)
    return Place(digest, chain, rest[whole : whole + BLOCK_BYTES - TOKEN_BYTES])


def _longer(chain: Chain | None, digest: bytes) -> Chain:
    count = _blocks(chain) + 1
    if count % SEGMENT_BLOCKS:
        return Chain(count, digest, chain)
    pieces = [digest]
    while chain is not None and chain.count % SEGMENT_BLOCKS:
        pieces.append(chain.piece)
        chain = chain.before
    return Chain(count, b"".join(reversed(pieces)), chain)


def _blocks(chain: Chain | None) -> int:
    return 0 if chain is None else chain.count


def _back(chain: Chain | None) -> Iterator[Chain]:
    while chain is not None:
        yield chain
        chain = chain.before
