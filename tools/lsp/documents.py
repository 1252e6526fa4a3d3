"""The editor's open documents, changed as it reports, with its line ends and its units of position."""

from __future__ import annotations

import io
from collections.abc import Sequence

from lsprotocol import types
from pygls.workspace import PositionCodec, TextDocument


class Document(TextDocument):
    """pygls' document with LSP's three line ends.

    `str.splitlines`, which pygls uses, also ends lines at form feeds: every position after one would be wrong.
    """

    _lines: tuple[str, list[str]] | None = None
    """A text and its lines, cached since each keystroke reads them several times."""

    @property
    def lines(self) -> Sequence[str]:
        """Every line with its end. The last line has none and is included even if it is empty."""
        source = self.source
        if self._lines is None or self._lines[0] is not source:
            lines = list(io.StringIO(source, newline=""))  # "": ends at LF, CRLF and CR, which are kept
            if not lines or lines[-1].endswith(("\r", "\n")):
                lines.append("")
            self._lines = source, lines
        return self._lines[1]


class Documents:
    """All open documents by URI. A change to one that is not open is the editor's error and is ignored."""

    def __init__(self, encoding: types.PositionEncodingKind | str) -> None:
        """encoding: what a position's `character` counts, as negotiated."""
        self._codec = PositionCodec(encoding)
        self._open: dict[str, Document] = {}

    def open(self, item: types.TextDocumentItem) -> None:
        """Add a document that the editor opened."""
        self._open[item.uri] = Document(item.uri, item.text, item.version, item.language_id, position_codec=self._codec)

    def change(self, uri: str, changes: Sequence[types.TextDocumentContentChangeEvent]) -> None:
        """Apply changes in order; the positions of each refer to the text after the one before."""
        if (document := self.find(uri)) is not None:
            for change in changes:
                document.apply_change(change)

    def close(self, uri: str) -> None:
        """Remove a document that the editor closed."""
        self._open.pop(uri, None)

    def find(self, uri: str) -> Document | None:
        """The document; None if it is not open."""
        return self._open.get(uri)
