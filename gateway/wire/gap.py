"""A gap to fill, independent of the wire format, so that gaps of different requests can be compared."""

from __future__ import annotations

import msgspec

MAX_COMPARED = 131_072
"""Characters of a gap that is compared with others, many times a prompt's window: the comparison runs on the event
loop."""


class Snippet(msgspec.Struct, frozen=True):
    """Text of another file, or of another part of this one, that may help."""

    path: str
    text: str


class Gap(msgspec.Struct, frozen=True):
    r"""A gap in a file; line ends are `\n` where the model is to see them as such."""

    prefix: str
    """All text before the cursor that the client sent."""
    suffix: str
    """All text after it."""
    snippets: tuple[Snippet, ...] = ()
    path: str = ""
    language: str = ""

    @property
    def comparable(self) -> bool:
        """Short enough to be kept while its request is in flight, and compared with others."""
        snippets = sum(len(snippet.path) + len(snippet.text) for snippet in self.snippets)
        return len(self.prefix) + len(self.suffix) + len(self.path) + snippets <= MAX_COMPARED
