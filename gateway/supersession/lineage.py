"""Decides which of two completion requests is the successor: the same user, typing on at the same position.

Pure. Judged strictly: a superseded client gets an empty response, and a script that fills different gaps of one file
must never get one.
"""

from __future__ import annotations

import hashlib

import msgspec

from gateway.wire.digest import digest_of

MAX_TYPED = 256
"""Characters between two keystrokes' prefixes. A greater distance means another position, or pasted text."""
HEAD_LINES = 3
"""Lines that identify a file without a path."""
CLOSERS = " \t\r\n)]}>\"'`,;:"
"""Text that editors insert after the cursor by themselves, and that users type over."""


class Keystroke(msgspec.Struct, frozen=True, kw_only=True):
    """A user's position and the text around the cursor. Kept only while its request is in flight."""

    organization_id: str
    key_id: str
    network: str
    """Network of the client's connection; empty behind a trusted proxy."""
    session: str
    """The client's name for itself or its user; empty: none."""
    model: str
    """With the requested adapter: `model:adapter`."""
    path: str
    """The file's path, as the client names it; empty: none."""
    prefix: str
    suffix: str

    @property
    def file(self) -> str:
        """The file's identity: the path, or its first complete lines.

        Not `gateway.wire.file_identity`, which routes requests to cached prompts: that takes 1,024 characters, because
        confusing two files costs a cache there, and gives none in the first line. Three lines suffice here, because
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
        return "\n" + self.prefix[: end + 1]  # no path begins so

    @property
    def behind(self) -> str:
        """The suffix without the closing marks and blanks at its beginning: they come and go during typing."""
        return self.suffix.lstrip(CLOSERS)

    @property
    def place(self) -> tuple[str, ...]:
        """All but the prefix: the common part of one lineage."""
        return (self.organization_id, self.key_id, self.network, self.session, self.model, self.file, self.behind)


def near(older: str, newer: str) -> bool:
    """Whether two prefixes can belong to keystrokes at one position: one is the start of the other, a few characters
    longer or shorter. Equal prefixes are no new keystroke."""
    return few_typed(len(older), len(newer)) and (newer.startswith(older) or older.startswith(newer))


def few_typed(older_length: int, newer_length: int) -> bool:
    """Whether the lengths allow two keystrokes: they differ, and not by much."""
    return 0 < abs(older_length - newer_length) <= MAX_TYPED


class Digests:
    """Keyed digests: a reader learns nothing from them, and cannot check a guessed text."""

    def __init__(self, secret: bytes) -> None:
        """secret: the deployment's, the same at every gateway."""
        self._key = hashlib.blake2b(secret, digest_size=32, person=b"keystrokes").digest()

    def lineage(self, keystroke: Keystroke) -> bytes:
        """The same for all keystrokes of one lineage."""
        return digest_of(("lineage", *keystroke.place), self._key)

    def prefix(self, keystroke: Keystroke, length: int) -> bytes:
        """Digest of the first `length` characters of its prefix."""
        return digest_of(("prefix", keystroke.prefix[:length]), self._key)
