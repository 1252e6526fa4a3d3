"""Decides which of two completion requests is the successor: the same user continues to type at the same position.

Pure. The rules are strict: a superseded client gets an empty response, and a script that fills different gaps of one
file must never get one.
"""

from __future__ import annotations

import hashlib

import msgspec

from gateway.wire.digest import digest_of

MAX_TYPED = 256
"""Limit of the characters between two keystrokes' prefixes. A greater distance means another position or a paste."""
HEAD_LINES = 3
"""Lines that identify a file without a path."""
CLOSERS = " \t\r\n)]}>\"'`,;:"
"""Characters that editors insert after the cursor by themselves, and that users type over."""


class Keystroke(msgspec.Struct, frozen=True, kw_only=True):
    """A user's position and the text around the cursor. Kept only while its request is in flight."""

    organization_id: str
    key_id: str
    network: str
    """Network of the client's connection; empty behind a trusted proxy."""
    session: str
    """The client's name for itself or its user, or empty."""
    model: str
    """The model, with the requested adapter: `model:adapter`."""
    path: str
    """The file's path, as the client names it, or empty."""
    prefix: str
    suffix: str

    @property
    def file(self) -> str:
        """The file's identity: the path, or its first complete lines.

        `gateway.wire.file_identity` differs, because it routes requests to cached prompts: it takes 1,024 characters,
        as confusing two files costs a cache there, and is empty in the first line. Three lines suffice here, because
        prefix and suffix are compared too; they stop changing sooner, and users type in the first line as well.
        """
        if self.path:
            return self.path
        end = -1
        for _ in range(HEAD_LINES):
            following = self.prefix.find("\n", end + 1)
            if following < 0:
                break
            end = following
        return "\n" + self.prefix[: end + 1]  # no path begins with a line end

    @property
    def behind(self) -> str:
        """The suffix without the closing marks and blanks at its beginning, which come and go during typing."""
        return self.suffix.lstrip(CLOSERS)

    @property
    def place(self) -> tuple[str, ...]:
        """All fields but the prefix: the common part of one lineage."""
        return (self.organization_id, self.key_id, self.network, self.session, self.model, self.file, self.behind)


def near(older: str, newer: str) -> bool:
    """Whether two prefixes can belong to keystrokes at one position: one is the start of the other, a few characters
    longer or shorter. Equal prefixes are not a new keystroke."""
    return few_typed(len(older), len(newer)) and (newer.startswith(older) or older.startswith(newer))


def few_typed(older_length: int, newer_length: int) -> bool:
    """Whether the lengths allow two keystrokes: they differ, and not by much."""
    return 0 < abs(older_length - newer_length) <= MAX_TYPED


class Digests:
    """Keyed digests, from which a reader learns nothing and cannot check a guessed text."""

    def __init__(self, secret: bytes) -> None:
        """secret: the deployment's, the same at every gateway."""
        self._key = hashlib.blake2b(secret, digest_size=32, person=b"keystrokes").digest()

    def lineage(self, keystroke: Keystroke) -> bytes:
        """Digest of the keystroke's lineage, the same for all keystrokes of it."""
        return digest_of(("lineage", *keystroke.place), self._key)

    def prefix(self, keystroke: Keystroke, length: int) -> bytes:
        """Digest of the first `length` characters of the keystroke's prefix."""
        return digest_of(("prefix", keystroke.prefix[:length]), self._key)
