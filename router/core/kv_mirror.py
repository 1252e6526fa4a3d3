"""Follows an engine's KV events, in the format that SGLang and vLLM share, to know which of our token blocks it holds.

Events contain the engine's own pages and hashes. For each page, the mirror keeps its position in our chain: the whole
blocks before it, and the tokens since. A page that completes one of our blocks yields its hash. Only prompts that
reached the router as token ids can be compared, and only under a known root, which consists of the model and the
event's salt and adapter. An engine whose events name no adapter would report an adapter's blocks as the model's: once
requests have had adapters there, blocks without an adapter are accepted only if the engine has named one before.
Messages are numbered; after a gap, the mirror requests a replay, and after a restart it starts again. A publisher can
affect only the record of its own cache: unreadable events are skipped, and a message costs its own length, not that of
its chains.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import xxhash

from contracts.prefix import BLOCK_TOKENS, HASH_BYTES, MAX_BLOCKS, root

PATIENCE_MESSAGES = 1_000
"""Most messages that are kept while a replay is awaited; beyond it, the missed ones are given up."""
PATIENCE_BYTES = 32 << 20
"""Most bytes of these messages. An engine answers a replay in a few steps, and the largest has 2 MB of events."""
PAGES_LIMIT = 2_000_000
"""Most pages that are remembered per replica; further pages are not followed."""
TOKEN_BYTES = 4
BLOCK_BYTES = BLOCK_TOKENS * TOKEN_BYTES
SEGMENT_BLOCKS = 32
"""Blocks whose hashes are kept joined, so that the longest chain consists of some 90 parts instead of 2,048."""
UNREADABLE = (msgspec.MsgspecError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError)
"""Exceptions from reading data of another format."""


class _Message(msgspec.Struct, frozen=True, array_like=True):
    at: float
    """The time by the engine's own clock."""
    events: list[Any]


class Chain(msgspec.Struct, frozen=True):
    """A chain of whole blocks from a root. It is a linked list, newest first, so that chains share their prefixes."""

    count: int
    """Number of blocks."""
    piece: bytes
    """Hash of the last block or, if `count` is a multiple of SEGMENT_BLOCKS, the hashes of the last segment."""
    before: Chain | None
    """The chain before `piece`."""

    @property
    def hashes(self) -> bytes:
        """Hashes of all blocks, first to last, joined."""
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
    """A change to the first `blocks` of a chain: the engine now holds the last of them or, if `gone`, no longer does.
    If `chain` is None, it holds nothing any more."""

    chain: Chain | None
    blocks: int
    gone: bool

    @property
    def hashes(self) -> bytes:
        """Hashes of these blocks, assembled on demand, because a message's changes have long chains in common."""
        return b"" if self.chain is None else self.chain.hashes[: self.blocks * HASH_BYTES]


EVERYTHING = Change(None, 0, True)


class KvMirror:
    """The mirror of one replica. model: the public name under which prompts are hashed. replays: whether the engine
    repeats missed messages."""

    def __init__(self, model: str, replays: bool = True) -> None:
        self._model = model
        self._replays = replays
        self._ahead: dict[int, bytes] = {}
        """Messages that arrived while a replay is awaited, by number; the replay may have been answered before the
        engine sent them."""
        self._ahead_bytes = 0
        self._places: dict[int | bytes, Place] = {}
        self.next_number = 0
        """Number of the next expected message."""
        self.taken_bytes = 0
        """Bytes of all messages applied in order."""
        self._asked_from = -1
        self._page_tokens = 1
        self._newest_at = 0.0
        """The time of the last applied message, by the engine's clock."""
        self._names_adapters = False
        """Whether an event has named an adapter."""

    def __len__(self) -> int:
        return len(self._places)

    def forget(self) -> None:
        """Forget all pages, because the engine has restarted or cleared its cache."""
        self._places.clear()

    def take(
        self, number: int, payload: bytes, repeated: bool, adapters: bool = False
    ) -> tuple[list[Change], int | None]:
        """Process one message. Returns the changes, and the number from which a replay is needed (None for no replay).

        repeated: whether the message comes from a replay. adapters: whether requests have used LoRA adapters on the
        engine since its start. Unreadable events are skipped. Raises UNREADABLE for a message of another format.
        """
        message = msgspec.msgpack.decode(payload, type=_Message)
        changes: list[Change] = []
        if number < self.next_number:
            if repeated or message.at <= self._newest_at:
                return [], None
            # a lower number at a later time means that the engine has restarted its count
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
            # the messages in between are lost, and blocks that they removed would stay forever
            self._drop_ahead(number)
            self.forget()
            changes.append(EVERYTHING)
        changes += self._in_turn(number, payload, message, adapters)
        while (kept := self._ahead.get(self.next_number)) is not None:
            message = msgspec.msgpack.decode(kept, type=_Message)
            changes += self._in_turn(self.next_number, kept, message, adapters)
        return changes, None

    def _keep_ahead(self, number: int, payload: bytes) -> bool:
        """Keep a message until the replay. Returns whether there was room for it."""
        total_bytes = self._ahead_bytes - len(self._ahead.get(number, b"")) + len(payload)
        if len(self._ahead) >= PATIENCE_MESSAGES or total_bytes > PATIENCE_BYTES:
            return False
        self._ahead[number], self._ahead_bytes = payload, total_bytes
        return True

    def _drop_ahead(self, number: int) -> None:
        """Drop all kept messages up to this number; -1 for all messages."""
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
                continue  # another format, or truncated; the other events are intact
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
            if not adapters or self._names_adapters:  # otherwise, the block's owner is unknown
                self._stored(stored, changes)

    def _stored(self, event: _Stored, changes: list[Change]) -> None:
        place = self._places.get(event.parent) if event.parent is not None else None
        if place is None:
            if event.parent is not None:
                return  # the parent was stored before the router listened, or its event was lost
            place = Place(root(self._model, event.adapter, salt=event.salt), None, b"")
        tokens = array("I", event.tokens).tobytes()
        self._page_tokens = event.page_tokens
        page_bytes = event.page_tokens * TOKEN_BYTES
        above = place.chain
        for at, page in enumerate(event.hashes):
            if _blocks(place.chain) == MAX_BLOCKS:
                break  # no prompt is compared beyond this length
            place = _after(place, tokens[at * page_bytes : (at + 1) * page_bytes])
            if len(self._places) < PAGES_LIMIT:
                self._places[page] = place
        if place.chain is above:
            return
        if above is not None and changes and changes[-1].chain is above and not changes[-1].gone:
            changes.pop()  # engines report page by page, and the longer chain includes this one
        changes.append(Change(place.chain, _blocks(place.chain), False))

    def _removed(self, page: int | bytes) -> Change | None:
        """The change for a removed page, which removes every block that it touches, even if not listed."""
        place = self._places.pop(page, None)
        if place is None:
            return None
        whole = _blocks(place.chain)
        # a page may be longer than a router block: vLLM's pages on a CPU have 128 tokens
        begins_at = whole * BLOCK_TOKENS + len(place.rest) // TOKEN_BYTES - self._page_tokens
        touched = max(begins_at, 0) // BLOCK_TOKENS
        # otherwise, the page is entirely inside an incomplete block
        return Change(place.chain, touched + 1, True) if touched < whole else None


class _Stored(msgspec.Struct, frozen=True):
    hashes: Sequence[int | bytes]
    parent: int | bytes | None
    tokens: Sequence[int]
    page_tokens: int
    salt: str
    adapter: str
    """The engine's name for the adapter; empty for none."""

    @classmethod
    def of(cls, event: Any) -> _Stored:
        """Read an event, an array or a map. SGLang's maps have the salt; other events have extra keys."""
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
            del keys[0]  # vLLM puts the adapter before the salt
        salt = keys[0] if keys and isinstance(keys[0], str) else ""
        return cls(hashes, parent, tokens, size, salt, adapter or "")


def _after(place: Place, tokens: bytes) -> Place:
    """The end position of a page with these tokens that begins at `place`."""
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
    hashes = [digest]
    while chain is not None and chain.count % SEGMENT_BLOCKS:
        hashes.append(chain.piece)
        chain = chain.before
    return Chain(count, b"".join(reversed(hashes)), chain)


def _blocks(chain: Chain | None) -> int:
    return 0 if chain is None else chain.count


def _back(chain: Chain | None) -> Iterator[Chain]:
    while chain is not None:
        yield chain
        chain = chain.before
