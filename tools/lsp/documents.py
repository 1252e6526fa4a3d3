"""The texts the editor has open, changed as it says, by its line ends and its units of position."""

from __future__ import annotations

import io
from collections.abc import Sequence

from lsprotocol import types
from pygls.workspace import PositionCodec, TextDocument


class Document(TextDocument):
    """pygls' document, by LSP's three line ends.

    Python's `splitlines`, which pygls uses, ends lines at form feeds too: every position below one would be wrong.
    """

    _lines: tuple[str, list[str]] | None = None
    """A text and its lines: they are asked for several times a keystroke."""

    @property
    def lines(self) -> Sequence[str]:
        """Every line with its end; the last has none, and is there when it is empty."""
        source = self.source
        if self._lines is None or self._lines[0] is not source:
            lines = list(io.StringIO(source, newline=""))  # "": ends at LF, CRLF and CR, which are kept
            if not lines or lines[-1].endswith(("\r", "\n")):
                lines.append("")
            self._lines = source, lines
        return self._lines[1]


class Documents:
    """All open ones, by URI. A change to one that is not open is an error of the editor's and changes nothing."""

    def __init__(self, encoding: types.PositionEncodingKind | str) -> None:
        """encoding: what a position's `character` counts, as negotiated."""
        self._codec = PositionCodec(encoding)
        self._open: dict[str, Document] = {}

    def open(self, item: types.TextDocumentItem) -> None:
        """The editor shows it."""
        self._open[item.uri] = Document(item.uri, item.text, item.version, item.language_id, position_codec=self._codec)

    def change(self, uri: str, changes: Sequence[types.TextDocumentContentChangeEvent]) -> None:
        """Changes in order, each counted from what the one before left."""
        if (document := self.find(uri)) is not None:
            for change in changes:
                document.apply_change(change)

    def close(self, uri: str) -> None:
        """Its text is nobody's business any more."""
        self._open.pop(uri, None)

    def find(self, uri: str) -> Document | None:
        """None: it is not open."""
        return self._open.get(uri)
