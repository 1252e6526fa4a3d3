"""Documents change as an editor says, by LSP's own line ends."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol import types

from tools.lsp.documents import Document, Documents

TEXTS = st.text(alphabet="ab𝄞\f\u2028\r\n", max_size=30)


@given(TEXTS)
def test_lines_end_where_lsp_ends_them(text: str) -> None:
    lines = Document("file:///a", text).lines
    assert "".join(lines) == text
    assert [re.sub(r"[\r\n]+$", "", line) for line in lines] == re.split(r"\r\n|\r|\n", text)


@given(TEXTS, TEXTS, st.data())
def test_a_change_replaces_what_lies_between_its_places(text: str, added: str, data: st.DataObject) -> None:
    documents = Documents(types.PositionEncodingKind.Utf16)
    documents.open(types.TextDocumentItem("file:///a", "python", 1, text))
    document = documents.find("file:///a")
    assert document is not None
    places = []
    for _ in range(2):
        line = data.draw(st.integers(0, len(document.lines) - 1))
        bare = document.lines[line].rstrip("\r\n")
        column = data.draw(st.integers(0, len(bare)))
        units = len(bare[:column].encode("utf-16-le")) // 2
        offset = sum(map(len, document.lines[:line])) + column
        assert document.offset_at_position(types.Position(line, units)) == offset
        places.append((offset, types.Position(line, units)))
    (start, first), (end, last) = sorted(places, key=lambda place: place[0])
    change = types.TextDocumentContentChangePartial(range=types.Range(first, last), text=added)
    documents.change("file:///a", [change])
    assert document.source == text[:start] + added + text[end:]


@pytest.mark.parametrize("after_last", [types.Position(9, 0), types.Position(2, 0)])
def test_a_change_may_reach_past_the_end(after_last: types.Position) -> None:
    documents = Documents(types.PositionEncodingKind.Utf16)
    documents.open(types.TextDocumentItem("file:///a", "python", 1, "a\nb𝄞\n"))
    everything = types.Range(types.Position(0, 0), after_last)
    documents.change("file:///a", [types.TextDocumentContentChangePartial(range=everything, text="new")])
    document = documents.find("file:///a")
    assert document is not None
    assert document.source == "new"


def test_a_document_that_is_not_open_is_not_there() -> None:
    documents = Documents(types.PositionEncodingKind.Utf16)
    documents.change("file:///a", [types.TextDocumentContentChangeWholeDocument(text="x")])
    documents.close("file:///a")
    assert documents.find("file:///a") is None
