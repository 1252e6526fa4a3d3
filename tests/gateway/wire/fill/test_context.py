"""One line or a block, by where the cursor stands."""

from __future__ import annotations

import ast
from pathlib import Path

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from gateway.wire.fill.context import Block, block_at, by_context, opens
from gateway.wire.fill.stop_rules import StopRules, indentation
from tests.examples import examples
from tests.gateway.wire.fill.test_stop_rules import filtered

FREE = Block()


@pytest.mark.parametrize(
    ("language", "prefix", "suffix", "block"),
    [
        # text behind the cursor: the rest of the line
        ("python", "x = f(", ")\n", None),
        ("python", "    ", "return x\n", None),
        ("go", "a := ", " + b\n", None),
        ("python", '{"a":', " 1}\n", None),
        ("markdown", "Some ", " text", None),
        # the head of a block that stands below already
        ("python", "for x in ", "\n    print(x)\n", None),
        ("python", "  for x in ", "\n    print(x)\n", None),
        ("python", "def f():\n    wi", "\n        y()\n", None),
        ("go", "func f() {\n\tfor i ", "\n\t\tx()\n\t}\n}\n", None),
        ("ruby", "for x in ", "\n  puts x\nend\n", None),
        ("lua", "if x the", "\n  y()\nend\n", None),
        ("python", "x = foo", "\n    .bar()\n", None),
        ("python", "for x in y:", "\n    print(x)\n", Block(1)),
        ("go", "if x {", "\n\ty()\n}\n", Block(1)),
        ("python", "for x in ", "\nprint(x)\n", Block()),
        ("python", "for x in ", "\n\n    print(x)\n", Block()),
        ("python", "class A:\n", "\n    x = 1\n", Block(1)),
        # behind what opens a block, or in an empty line below it
        ("python", "def f(x):", "\n", Block(1)),
        ("python", "  def f(x):\n    ", "\n\ng()\n", Block(4)),
        ("python", "def f(x):\n", "\n", Block(1)),
        ("python", "def f(x):", "f(1)", Block(1)),
        ("python", "    async with a as b:", "", Block(5)),
        ("python", "x = [", "\n", Block(1, 0)),
        ("go", "\tif x {", "\n\treturn\n", Block(2, 1)),
        ("go", "\tif x {\n\t\t", "\n\t}\n", Block(2)),
        ("go", "\tif x {\n\t\t", "\n\t\ty()\n\t}\n", Block(2)),
        ("javascript", "  f(() => {", "})\n", Block(3, 2)),
        ("ruby", "  def f(x)", "\n", Block(3, 2)),
        ("ruby", "xs.each do |x|\n  ", "\nend\n", Block(2)),
        ("lua", "if x then\n  ", "\n", Block(2, 0)),
        ("shellscript", "for x in y; do\n  ", "\n", Block(2, 0)),
        # in an empty, indented line
        ("python", "def f():\n    x = 1\n    ", "\n", Block(4)),
        ("go", "func f() {\n\tx()\n\t", "\n", Block(1, 0)),
        ("go", "func f() {\n\tx()\n\t", "\n}\n", Block(1)),
        # a half-typed line
        ("go", "func f() {\n\tx +", "\n", Block(1, 0)),
        ("go", "func f() {\n\tx +", "\n}\n", Block(1)),
        ("python", "def f():\n    retu", "\n", Block(4)),
        ("python", "impo", "\n", Block()),
        # as the model ends it
        ("python", "x = 1\n", "\n", FREE),
        ("python", "", "", FREE),
        ("markdown", "# Title {", "\n", FREE),
        # an unknown language
        ("other", "while x:", "", Block(1)),
        ("other", "while (x) {", "", Block(1, 0)),
        ("other", "begin", "", Block()),
    ],
)
def test_where_the_cursor_stands_decides(language: str, prefix: str, suffix: str, block: Block | None) -> None:
    assert block_at(prefix, suffix, language) == block


@pytest.mark.parametrize(
    ("language", "prefix", "suffix", "written", "shown"),
    [
        ("python", "if x:\n    ", "\n", "a()\n    b()\n\nelse:\n    c()\n", "a()\n    b()"),
        ("go", "if x {", "\ny()\n", "\n\ta()\n}\n\nfunc g() {", "\n\ta()\n}"),
        ("go", "if x {", "}\ny()\n", "\n\ta()\n}\n\nfunc g() {", "\n\ta()\n"),
        ("go", "if x {\n\t", "\n}\ny()\n", "a()\n\tb()\n}\n", "a()\n\tb()"),
        ("python", "x = f(", ")\n", "a, b)\ny = 2\n", "a, b"),
        ("ruby", "def f", "", "(x)\n  x\nend\n\ndef g", "(x)\n  x\nend"),
        ("python", "for x in ", "\n    total += x\n", "xs:\n    print(x)\n\nreturn total\n", "xs:"),
    ],
)
def test_the_completion_ends_with_the_line_or_the_block(
    language: str, prefix: str, suffix: str, written: str, shown: str
) -> None:
    rules = by_context(StopRules(), "auto", prefix, suffix, language)
    assert filtered([written], rules, suffix) == filtered(list(written), rules, suffix) == shown


def test_a_model_may_have_single_lines_always_or_no_such_rule() -> None:
    assert by_context(StopRules(), "single", "def f():\n    ", "", "python") == StopRules(single_line=True)
    assert by_context(StopRules(), "free", "f(", ")", "python") == StopRules()


def test_an_indentation_that_the_client_asked_for_stays() -> None:
    asked = StopRules(min_indent=8)
    assert by_context(asked, "auto", "if x {\n    ", "", "go") == asked
    assert by_context(asked, "auto", "f(", ")", "go") == msgspec.structs.replace(asked, single_line=True)


@pytest.mark.parametrize(("language", "prefix"), [("python", "if x:\n    "), ("go", "if x {\n\t"), ("python", "")])
@pytest.mark.parametrize("suffix", ["\n", "\n}\n", "\n    y()\n", "\n        y()\n"])
def test_typing_on_in_a_line_changes_nothing(language: str, prefix: str, suffix: str) -> None:
    typed = "total = first + second"
    assert len({block_at(prefix + typed[:length], suffix, language) for length in range(len(typed))}) == 1


SOURCES = sorted((Path(__file__).parents[4] / "gateway" / "wire" / "fill").glob("*.py"))
GO = """func f(x int) int {
\tif x > 1 {
\t\tx = g(func(y int) int {
\t\t\treturn y
\t\t})
\t}

\treturn x
}

func h() {
\tf(1)
}
"""


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_function_is_written_to_its_end_and_no_further(source: Path) -> None:
    text = source.read_text()
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        header, last = node.body[0].lineno - 1, node.end_lineno
        prefix, written = "".join(lines[:header]).rstrip("\n"), "\n" + "".join(lines[header:])
        if not prefix.endswith(":"):
            continue  # a comment stands behind it
        rules = by_context(StopRules(repetition=False), "auto", prefix, "", "python")
        body = "".join(lines[header:last]).rstrip("\n")
        assert filtered([written], rules, "").rstrip("\n") == "\n" + body
        indented = prefix + "\n" + " " * node.body[0].col_offset
        rules = by_context(StopRules(repetition=False), "auto", indented, "", "python")
        assert filtered([written.lstrip()], rules, "").rstrip("\n") == body.lstrip()


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_head_of_a_block_that_stands_below_is_one_line_wherever_in_it_the_cursor_is(source: Path) -> None:
    text = source.read_text()
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.For | ast.If | ast.While | ast.With | ast.FunctionDef | ast.ClassDef):
            continue
        head = lines[node.lineno - 1]
        before, below = "".join(lines[: node.lineno - 1]), "\n" + "".join(lines[node.lineno :])
        for length in range(node.col_offset + 1, head.rfind(":")):
            if not opens(head[:length], "python"):
                rules = by_context(StopRules(), "auto", before + head[:length], below, "python")
                another_body = " " * (node.col_offset + 4) + "another_body()\n"
                assert filtered([head[length:] + another_body], rules, below) == head[length:-1]


@pytest.mark.parametrize(
    ("opener", "end"),
    [("func f(x int) int {", "\n}\n\nfunc h"), ("\tif x > 1 {", "\n\t}\n\n"), ("g(func(y int) int {", "\n\t\t})\n")],
)
def test_a_block_in_braces_is_written_with_the_line_that_closes_it(opener: str, end: str) -> None:
    at = GO.index(opener) + len(opener)
    stop = GO.index(end, at) + len(end.rstrip("\n\tfunch "))
    rules = by_context(StopRules(), "auto", GO[:at], "\n", "go")
    assert filtered(list(GO[at:]), rules, "\n") == GO[at:stop]


PIECES = st.lists(st.sampled_from(["\n", "    ", "\t", "if x:", "{", "}", "end", "do", "x", " ", "("]), max_size=30)


@given(PIECES.map("".join), PIECES.map("".join), st.sampled_from(["python", "go", "ruby", "markdown", "other"]))
@examples(nightly=300)
def test_whatever_the_file_the_end_of_a_block_is_outside_of_it(prefix: str, suffix: str, language: str) -> None:
    block = block_at(prefix, suffix, language)
    if block is None:
        rest, _, below = suffix.partition("\n")
        under, line = below.partition("\n")[0], prefix[prefix.rfind("\n") + 1 :]
        body = under.strip() and indentation(under) > indentation(line)
        assert rest.strip() or body, "something stands behind the cursor, or a block directly below it"
    elif block.closes_at is not None:
        assert block.min_indent is not None
        assert 0 <= block.closes_at < block.min_indent
