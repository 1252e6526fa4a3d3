"""Where completions end, whatever the pieces that they come in."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from gateway.wire.fill.stop_rules import StopRules, TextFilter
from tests.examples import examples
from tests.gateway.wire.fill.naive_stop_rules import cut

LINES = st.sampled_from(
    [
        *("", "  ", "a", "  a", "  a ", "  b", "    b", ")", "  )", "f(a))", 'a"', "a b", "\t", "x = 1"),
        *("}", "  }", "  });", "} else {", "end", "  end ", "endless", "e"),
    ]
)
TEXTS = st.lists(LINES, max_size=12).map("\n".join)
REST = st.sampled_from(["", ")", " )", "a)", '"', '")', "a", "b a", "a a", "))"])
SUFFIXES = st.builds(lambda rest, below: "\n".join([rest, *below]), REST, st.lists(LINES, max_size=4))
RULES = st.builds(
    StopRules,
    single_line=st.booleans(),
    min_indent=st.sampled_from([None, None, 0, 1, 2, 4]),
    closes_at=st.sampled_from([None, 0, 2]),
    trim_suffix=st.booleans(),
    repetition=st.booleans(),
)


@given(TEXTS, SUFFIXES, RULES, st.data())
@examples(nightly=1_500)
def test_cut_anywhere_a_text_ends_where_the_whole_one_does(
    text: str, suffix: str, rules: StopRules, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=10)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    assert filtered(pieces, rules, suffix) == cut(text, rules, suffix)
    assert filtered(list(text), rules, suffix) == cut(text, rules, suffix)


def test_a_single_line_ends_before_its_line_end_and_then_nothing_is_taken() -> None:
    text_filter = TextFilter(StopRules(single_line=True), "")

    assert text_filter.feed("total = 1") == "total = 1"
    assert not text_filter.stopped
    assert text_filter.feed(" + 2\nprint(") == " + 2"
    assert text_filter.stopped
    assert text_filter.feed("more") == ""
    assert text_filter.finish() == ""


def test_a_block_ends_as_soon_as_a_line_is_indented_less() -> None:
    text_filter = TextFilter(StopRules(min_indent=4), "")

    sent = text_filter.feed("x = 1\n    return x\n\n")
    assert text_filter.feed("  ") == ""
    assert not text_filter.stopped
    sent += text_filter.feed("y")
    assert text_filter.stopped
    assert sent + text_filter.finish() == "x = 1\n    return x"


def test_a_block_has_the_line_that_closes_it_and_nothing_behind() -> None:
    rules = StopRules(min_indent=3, closes_at=2)

    assert filtered(list("\n    x();\n  }\n\n  y();"), rules, "") == "\n    x();\n  }"
    assert filtered(list("\n    x();\n  } else {\n"), rules, "") == "\n    x();"
    assert filtered(list("\n    x();\n}\n"), rules, "") == "\n    x();"
    assert filtered(list("\n    x\n  end"), rules, "") == "\n    x\n  end"
    assert filtered(list("\n    x\n  endless"), rules, "") == "\n    x"


def test_a_line_that_the_suffix_goes_on_with_is_not_written_again() -> None:
    suffix = "\n\n    return total\n"

    assert filtered(["x\n    retur", "n total\nmore"], StopRules(), suffix) == "x"
    assert filtered(["x\n    return tot"], StopRules(), suffix) == "x\n    return tot"
    assert filtered(["x\n    }\ny"], StopRules(), "\n    }\n") == "x\n    }\ny"


@pytest.mark.parametrize(
    ("text", "suffix", "shown"),
    [
        ("foo(x)", ")\n", "foo(x)"),
        ("foo(x))", ")\n", "foo(x)"),
        ("x):", "):\n", "x"),
        ('name"', '"\n', "name"),
        ('"name"', '"\n', '"name"'),
        ("i in range(3)", " in range(3)\n", "i"),
    ],
)
def test_the_rest_of_the_cursors_line_is_not_written_again(text: str, suffix: str, shown: str) -> None:
    assert filtered(list(text), StopRules(), suffix).rstrip() == shown


def test_a_block_that_comes_a_third_time_is_cut_off() -> None:
    block = "    a = f(a)\n    b = g(b)\n"

    assert filtered([block * 5], StopRules(), "") == block + block.rstrip("\n")
    assert filtered([block * 5], StopRules(repetition=False), "") == block * 5


def test_the_time_box_waits_for_a_line_end() -> None:
    now_s = 0.0
    text_filter = TextFilter(StopRules(time_limit_s=1.0), "", clock=lambda: now_s)

    text_filter.feed("def f(")
    now_s = 5.0
    assert text_filter.feed("x):") == "x):"
    assert not text_filter.stopped
    assert text_filter.feed("\n    r") == "\n    r"
    assert text_filter.stopped


def filtered(pieces: list[str], rules: StopRules, suffix: str) -> str:
    """What the client reads in all, which is all that it could read after any piece."""
    text_filter = TextFilter(rules, suffix)
    return "".join([text_filter.feed(piece) for piece in pieces]) + text_filter.finish()
