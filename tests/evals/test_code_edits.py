"""Replayed edits: what is asked, that nobody learnt it, and what each score says of a completion."""

from __future__ import annotations

import ast
import gzip
import hashlib
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.eval_runs.plan import seeds_of
from control.evals.store import SEEDS_A_DAY
from evals import asked
from evals.slices import code_edits
from evals.slices.code_edits import EDIT_SLICES, Edit, distance, edit_of, exact, parses, similarity
from evals.slices.code_files import PACK, CodeFile, code_files, pack, places
from evals.slices.item import Gap
from evals.slices.split import Split
from tests.examples import examples

MANIFEST = Path(__file__).parents[2] / "tools/training/data/slipstream-code.tsv.gz"
TEXT = "def area(width, height):\n    size = width * height\n    return size\n\n\nprint(area(2, 3))\n"
LINE = Edit("f.py", TEXT, TEXT.index("idth * h"), TEXT.index("\n    return"), is_block=False)
BLOCK = Edit("f.py", TEXT, TEXT.index("idth * h"), TEXT.index("\n\n\nprint"), is_block=True)


def test_no_file_is_one_that_the_shipped_model_learnt_from() -> None:
    rows = [line.split("\t") for line in gzip.decompress(MANIFEST.read_bytes()).decode().splitlines()]
    learnt = {sha256 for _, part, _, _, sha256 in rows if part == "train"}
    held = {name: sha256 for name, part, _, _, sha256 in rows if part == "held"}
    digests = {file.name: hashlib.sha256(file.text.encode()).hexdigest() for file in code_files()}
    assert learnt.isdisjoint(digests.values())
    of_library = {name: digest for name, digest in digests.items() if name.startswith("stdlib-")}
    assert of_library.items() <= held.items()
    assert len(of_library) >= 15
    assert all(name.startswith("slipstream/") for name in digests.keys() - of_library)
    assert not any(row[0].startswith("slipstream") for row in rows)


def test_the_pack_is_made_of_its_files_alone() -> None:
    files = list(code_files())
    assert pack(files[::-1]) == PACK.read_bytes()
    assert len({file.name for file in files}) == len(files) > 100


@examples(nightly=2_000, gate=60)
@given(seed=st.integers(0, 2**53))
def test_an_edit_is_a_half_typed_line_whose_rest_makes_a_file_that_parses(seed: int) -> None:
    edit = edit_of(seed)
    assert edit == edit_of(seed)
    line = edit.text[edit.text.rfind("\n", 0, edit.cursor) + 1 : edit.cursor]
    assert line.strip()
    assert len(edit.wanted.partition("\n")[0]) >= 2
    assert ("\n" in edit.wanted) == edit.is_block
    assert edit.completed(edit.wanted) == edit.text
    gap = edit.gap
    assert edit.text[: edit.cursor].endswith(gap.prefix)
    assert edit.text[edit.end :].startswith(gap.suffix)
    assert len(gap.prefix) <= code_edits.PREFIX_CHARACTERS
    assert len(gap.suffix) <= code_edits.SUFFIX_CHARACTERS
    assert gap.stop == (() if edit.is_block else ("\n",))
    assert (exact(edit, edit.wanted), similarity(edit, edit.wanted), parses(edit, edit.wanted)) == (1.0, 1.0, 1.0)
    assert (exact(edit, ""), similarity(edit, ""), parses(edit, "")) == (0.0, 0.0, 0.0)


def test_all_slices_ask_the_same_edits_and_a_file_is_a_cluster() -> None:
    for seed in range(30):
        items = [one.item(seed) for one in EDIT_SLICES]
        assert len({(item.gap, item.cluster, item.reference, item.max_tokens) for item in items}) == 1
        assert items[0].cluster == edit_of(seed).file
    versions = {one.version for one in EDIT_SLICES}
    assert len(versions) == len(EDIT_SLICES)
    with pytest.raises(ValueError, match="never trained on"):
        EDIT_SLICES[0].item(0, Split.TRAIN)


def test_each_night_asks_other_edits_of_many_files_lines_and_blocks() -> None:
    first, second = (seeds_of(EDIT_SLICES[0], day * SEEDS_A_DAY, 300) for day in (738_000, 738_001))
    edits = [edit_of(seed) for seed in (*first, *second)]
    assert len({(edit.file, edit.cursor, edit.end) for edit in edits}) > 590
    assert len({edit.file for edit in edits}) > 100
    assert 0.15 < sum(edit.is_block for edit in edits) / len(edits) < 0.35


@pytest.mark.parametrize(
    ("edit", "completion", "is_exact", "near", "is_python"),
    [
        (LINE, "idth * height", 1.0, 1.0, 1.0),
        (LINE, "idth * height  ", 1.0, 1.0, 1.0),
        (LINE, "idth + height", 0.0, 12 / 13, 1.0),
        (LINE, "idth * heigh", 0.0, 12 / 13, 1.0),
        (LINE, "idth * (height", 0.0, 13 / 14, 0.0),
        (LINE, "", 0.0, 0.0, 0.0),
        (BLOCK, "idth * height\n    return size", 1.0, 1.0, 1.0),
        (BLOCK, "idth * height\n    return 1", 1.0, 25 / 29, 1.0),
        (BLOCK, "idth * height\n   return size", 1.0, 28 / 29, 0.0),
    ],
)
def test_scores(edit: Edit, completion: str, is_exact: float, near: float, is_python: float) -> None:
    assert exact(edit, completion) == is_exact
    assert similarity(edit, completion) == pytest.approx(near)
    assert parses(edit, completion) == is_python


@pytest.mark.parametrize("completion", ["(" * 5_000, "\0", "-" * 20_000 + "1", "\ud800"])
def test_what_no_parser_takes_is_no_python_and_no_error(completion: str) -> None:
    assert parses(LINE, completion) == 0.0


def test_files_are_parsed_in_several_threads_at_a_time() -> None:
    """By `ast.parse` one of some thousand of them raised SystemError."""
    edits = [edit_of(seed) for seed in range(60)]
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda edit: parses(edit, edit.wanted), edits * 2)) == {1.0}


@examples(nightly=1_000, gate=60)
@given(one=st.text("abc", max_size=8), other=st.text("abc", max_size=8))
def test_the_distance_is_levenshteins(one: str, other: str) -> None:
    def plain(left: str, right: str) -> int:
        if not left or not right:
            return len(left) + len(right)
        if left[0] == right[0]:
            return plain(left[1:], right[1:])
        return 1 + min(plain(left[1:], right), plain(left, right[1:]), plain(left[1:], right[1:]))

    assert distance(one, other) == plain(one, other)


def test_comments_and_texts_are_no_places() -> None:
    text = '''"""A module
of two lines."""

import os
# a comment
"""A line."""
total = sum(range(10))  # of ten
path = """
    not code
"""
if total:
    print(os.sep)

    print(path)
'''
    found = [text[place.start : place.line_end] for place in places(text)]
    assert found == ["import os", "total = sum(range(10))  # of ten", "if total:", "print(os.sep)", "print(path)"]


def test_a_block_ends_where_its_lines_do() -> None:
    text = "x = 1\ny = 2\nz = 3\ndef f():\n    a = 1\n    if a:\n        b = 2\n    return b\n\nprint(f())\n"
    blocks = [text[place.start : place.end] for place in places(text) if place.end is not None]
    assert blocks == [
        "a = 1\n    if a:\n        b = 2\n    return b",
        "if a:\n        b = 2\n    return b",
    ]


def test_a_gap_is_asked_as_an_editor_asks_it() -> None:
    item = EDIT_SLICES[0].item(4)
    assert item.gap is not None
    assert asked.path_of(item) == "/v1/fim/completions"
    assert asked.body_of(item, "m") == {
        "model": "m",
        "prompt": item.gap.prefix,
        "suffix": item.gap.suffix,
        "max_tokens": item.max_tokens,
        "temperature": 0,
        "stop": list(item.gap.stop),
        "min_confidence": 0,
    }
    before, cursor, after = item.shown.partition("\N{BLACK VERTICAL RECTANGLE}")
    assert (item.gap.prefix.endswith(before), bool(cursor), item.gap.suffix.startswith(after)) == (True, True, True)


def test_a_file_longer_than_what_is_sent_is_cut_at_line_ends() -> None:
    text = "".join(f"value_{number} = {number}\n" for number in range(2_000))
    cursor = text.index("= 1000\n") + 2
    gap = Edit("f.py", text, cursor, cursor + 4, is_block=False).gap
    assert isinstance(gap, Gap)
    assert gap.prefix.startswith("value_")
    assert gap.suffix.endswith("\n")
    assert 3_000 < len(gap.prefix) <= 3_200
    assert 900 < len(gap.suffix) <= 1_000


def test_what_is_packed_is_python_in_the_oldest_version_that_is_served() -> None:
    for file in random.Random(3).sample(code_files(), 20):
        assert isinstance(file, CodeFile)
        ast.parse(file.text, feature_version=(3, 11))
