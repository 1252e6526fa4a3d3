"""A gap to fill, independent of the wire format, so that gaps of different requests can be compared."""

from __future__ import annotations

import msgspec

MAX_COMPARED = 131_072
"""Limit of a gap's characters for comparisons, many times a prompt's window. They run on the event loop."""


class Snippet(msgspec.Struct, frozen=True):
    """Text of another file, or of another part of this file, that may help the model."""

    path: str
    text: str


class Gap(msgspec.Struct, frozen=True):
    r"""A gap in a file, with `\n` line ends where the model is to see line ends."""

    prefix: str
    """All text before the cursor that the client sent."""
    suffix: str
    """All text after the cursor that the client sent."""
    snippets: tuple[Snippet, ...] = ()
    path: str = ""
    language: str = ""

    @property
    def comparable(self) -> bool:
        """Whether the gap is short enough to be kept while its request is in flight and compared with others."""
        snippets = sum(len(snippet.path) + len(snippet.text) for snippet in self.snippets)
        return len(self.prefix) + len(self.suffix) + len(self.path) + snippets <= MAX_COMPARED
