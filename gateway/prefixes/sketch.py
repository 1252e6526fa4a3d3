"""Remembers the recent blocks of one organization's prompts, in bounded memory, each with its last request.

A block's hash covers all blocks before it, so a binary search finds how much of a prompt was seen. A prompt's deepest
block is forgotten first, so that the rest stays a prefix.
"""

from __future__ import annotations

import sys
from collections import OrderedDict

from contracts.prefix import HASH_BYTES
from gateway.prefixes.parts import Parts

ENTRY_BYTES = 200
"""Approximate size of a block, its hash and its entry."""
TURN_BYTES = 300
TEMPLATE_BYTES = 400
MAX_TEMPLATES = 64
"""Limit of distinct templates; all others count as one, so that no tenant fills the table."""
TEMPLATE_IDLE_S = 3_600.0
"""Time after which an unused template frees its entry."""
MAX_TURNS = 4_096
OTHERS = "others"


class Remembered:
    """One request. places: number of references to it, from blocks that it used last and from templates. system_text:
    None unless its organization stores texts."""

    __slots__ = ("parts", "places", "size_bytes", "system_text")

    def __init__(self, parts: Parts, system_text: str | None = None) -> None:
        self.parts = parts
        self.places = 0
        self.system_text = system_text
        self.size_bytes = parts.size_bytes + (0 if system_text is None else sys.getsizeof(system_text))
        """Approximate size in memory: a text takes up to four bytes a character."""


class Template:
    """State of one of the organization's templates."""

    __slots__ = ("last", "other_systems", "used_s")

    def __init__(self) -> None:
        self.last: Remembered | None = None
        self.other_systems = 0
        """Number of consecutive requests, up to the last, whose system prompt differed from the one before."""
        self.used_s = 0.0


class Sketch:
    """Sketch of one organization. It only grows; the owner of all sketches calls `forget` to bound them."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self.templates: OrderedDict[str, Template] = OrderedDict()
        self._blocks: OrderedDict[bytes, Remembered] = OrderedDict()
        """The last request of each block, by hash, least recently used first."""
        self._turns: OrderedDict[int, tuple[str, int]] = OrderedDict()
        """Session and turn number of the newest prompt with these messages, by their digest."""

    def __len__(self) -> int:
        return len(self._blocks)

    def closest(self, hashes: bytes) -> tuple[int, Remembered | None]:
        """Number of leading blocks that were seen, and the last request that had them."""
        low, high = 0, len(hashes) // HASH_BYTES
        while low < high:
            middle = (low + high + 1) // 2
            if hashes[(middle - 1) * HASH_BYTES : middle * HASH_BYTES] in self._blocks:
                low = middle
            else:
                high = middle - 1
        return low, self._blocks[hashes[(low - 1) * HASH_BYTES : low * HASH_BYTES]] if low else None

    def remember(self, hashes: bytes, request: Remembered) -> None:
        """Record that these blocks were computed for the request."""
        blocks = self._blocks
        if hashes:
            self._hold(request, len(hashes) // HASH_BYTES)
        for at in range(len(hashes) - HASH_BYTES, -1, -HASH_BYTES):
            block = hashes[at : at + HASH_BYTES]
            before = blocks.pop(block, None)
            if before is None:
                self.size_bytes += ENTRY_BYTES
            else:
                self._let_go(before)
            blocks[block] = request

    def template(self, name: str, now_s: float) -> tuple[str, Template]:
        """The template of this name, or the common template if too many are in use."""
        found = self.templates.get(name)
        if found is None:
            oldest = next(iter(self.templates.values()), None)
            if len(self.templates) >= MAX_TEMPLATES and oldest is not None:
                if now_s - oldest.used_s < TEMPLATE_IDLE_S:
                    name = OTHERS
                else:
                    _, oldest = self.templates.popitem(last=False)
                    self.size_bytes -= TEMPLATE_BYTES
                    self._let_go(oldest.last)
            found = self.templates.get(name)
            if found is None:
                found = self.templates[name] = Template()
                self.size_bytes += TEMPLATE_BYTES
        found.used_s = now_s
        self.templates.move_to_end(name)
        return name, found

    def used(self, template: Template, request: Remembered) -> None:
        """Record a request as its template's last."""
        self._hold(request)
        self._let_go(template.last)
        template.last = request

    def turn(self, turns: tuple[int, ...], request_id: str) -> tuple[str, int]:
        """The session of the newest of these turns, named by its first request, and the turn's number from 1."""
        if not turns:
            return request_id, 1
        before = next((self._turns[turn] for turn in reversed(turns[-33:-1]) if turn in self._turns), None)
        session, number = (request_id, 1) if before is None else (before[0], before[1] + 1)
        if self._turns.pop(turns[-1], None) is None:
            self.size_bytes += TURN_BYTES
        self._turns[turns[-1]] = session, number
        if len(self._turns) > MAX_TURNS:
            self._turns.popitem(last=False)
            self.size_bytes -= TURN_BYTES
        return session, number

    def forget(self, until_bytes: int) -> None:
        """Forget down to this size, or everything: the oldest blocks first, then the oldest turns and templates."""
        while self.size_bytes > until_bytes and self._blocks:
            _, request = self._blocks.popitem(last=False)
            self.size_bytes -= ENTRY_BYTES
            self._let_go(request)
        while self.size_bytes > until_bytes and self._turns:
            self._turns.popitem(last=False)
            self.size_bytes -= TURN_BYTES
        while self.size_bytes > until_bytes and self.templates:
            _, template = self.templates.popitem(last=False)
            self.size_bytes -= TEMPLATE_BYTES
            self._let_go(template.last)

    def _hold(self, request: Remembered, places: int = 1) -> None:
        if not request.places:
            self.size_bytes += request.size_bytes
        request.places += places

    def _let_go(self, request: Remembered | None) -> None:
        if request is not None:
            request.places -= 1
            if not request.places:
                self.size_bytes -= request.size_bytes
