"""Nothing that a stranger wrote moves a terminal's cursor, and what people write stays as it is."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from contracts.printable import printable
from slipstream.table import table


@given(st.text())
def test_only_what_can_be_printed_is_left(text: str) -> None:
    shown = printable(text)
    assert not [one for one in shown if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
    assert shown == text or not text.isprintable()


def test_what_people_write_stays() -> None:
    assert printable("Müller & Söhne 東京 — naïve") == "Müller & Söhne 東京 — naïve"


def test_a_table_shows_escapes_and_keeps_its_rows() -> None:
    rows = list(
        table(("model", "status"), [("\x1b]0;PWN\x07\x1b[31m", "404"), ("a\nFAKE  200", "404"), ("\u202eabc", "200")])
    )
    shown = [r"\x1b]0;PWN\x07\x1b[31m", r"a\nFAKE  200", r"\u202eabc"]
    assert [row.rsplit(None, 1) for row in rows[1:]] == [
        [name, status] for name, status in zip(shown, ("404", "404", "200"), strict=True)
    ]
