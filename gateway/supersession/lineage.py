"""Which of two requests for a completion is the other one's successor: the same person, typing on at the same place.

Pure. Judged strictly: a client that is told that it has been superseded gets an empty answer, and a script that asks
about different gaps of one file must never be given one.
"""

from __future__ import annotations

import hashlib

import msgspec

from gateway.wire.digest import digest_of

MOST_TYPED = 256
"""Characters between two keystrokes' prefixes. What is farther apart is another place, or was pasted."""
HEAD_LINES = 3
"""Of a file that its client does not name: what it is known by."""
CLOSERS = " \t\r\n)]}>\"'`,;:"
"""What editors put behind the cursor by themselves, and what is typed over there."""


class Keystroke(msgspec.Struct, frozen=True, kw_only=True):
    """Who types where, and what stands around the cursor. Kept while its request is in flight, and never elsewhere."""

    organization_id: str
    key_id: str
    network: str
    """Where the client's connection comes from; empty behind a trusted proxy."""
    session: str
    """What the client names itself or its user by; empty: it does not."""
    model: str
    """With the adapter, where one is asked for: `model:adapter`."""
    path: str
    """Of the file, as the client names it; empty: it does not."""
    prefix: str
    suffix: str

    @property
    def file(self) -> str:
        """What its file is known by: the path, or its first lines, those that are complete and so not being typed.

        Not `gateway.wire.file_identity`, which sends requests where a prompt is kept: that takes 1,024 characters, for
        a file taken for another costs a cache there, and has none in a first line. Here three lines will do, for prefix
        and suffix are compared too; they stand still sooner, and somebody types in the first line as well.
        """
        if self.path:
            return self.path
        end = -1
        for _ in range(HEAD_LINES):
            following = self.prefix.find("\n", end + 1)
            if following < 0:
                break
            end = following
        return "\n" + self.prefix[: end + 1]  # no path begins so

    @property
    def behind(self) -> str:
        """The suffix without the closing marks and blanks it begins with: they come and go while somebody types."""
        return self.suffix.lstrip(CLOSERS)

    @property
    def place(self) -> tuple[str, ...]:
        """All but the prefix: what one lineage has in common."""
        return (self.organization_id, self.key_id, self.network, self.session, self.model, self.file, self.behind)


def near(older: str, newer: str) -> bool:
    """Whether prefixes can be those of two keystrokes at one place: one is the start of the other, some characters on
    or back. The same text is not typed on."""
    return few_typed(len(older), len(newer)) and (newer.startswith(older) or older.startswith(newer))


def few_typed(older_length: int, newer_length: int) -> bool:
    """Whether prefixes so long can be those of two keystrokes: they differ, and not by much."""
    return 0 < abs(older_length - newer_length) <= MOST_TYPED


class Digests:
    """Keyed digests: whoever reads them learns nothing, and cannot try out what a text may have been."""

    def __init__(self, secret: bytes) -> None:
        """secret: the deployment's, the same at every gateway."""
        self._key = hashlib.blake2b(secret, digest_size=32, person=b"keystrokes").digest()

    def lineage(self, keystroke: Keystroke) -> bytes:
        """The same for all keystrokes of one lineage."""
        return digest_of(("lineage", *keystroke.place), self._key)

    def prefix(self, keystroke: Keystroke, length: int) -> bytes:
        """Of the first `length` characters of its prefix."""
        return digest_of(("prefix", keystroke.prefix[:length]), self._key)
