"""Gaps cut into code: exact inverses, and laid out as the gateway lays them out."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from engines.tokenizer import tokenizer as serving
from tests.examples import examples
from tools.training.code_source import CodeSource, fim_tokens
from tools.training.fim import FimTokens, Gap, broken, lay_out, several_lines, single_line

MODEL = Path("models/slipstream-code")
TEXT = Path("contracts/errors.py").read_text()
CUTS: list[Callable[[str, random.Random], Gap | None]] = [single_line, several_lines]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(MODEL / "tokenizer.json"))


@pytest.mark.parametrize("cut", CUTS)
@given(text=st.text(alphabet="ab _=(\n\t'é#", max_size=200), seed=st.integers(0, 10_000))
@examples(nightly=750)
def test_the_three_parts_are_the_text(cut: Callable[[str, random.Random], Gap | None], text: str, seed: int) -> None:
    gap = cut(text, random.Random(seed))
    if gap is None:
        assert cut is several_lines or not text.strip()
    else:
        assert gap.prefix + gap.middle + gap.suffix == text
        assert gap.middle


def test_a_single_line_gap_stays_in_its_line_and_several_lines_end_at_a_line() -> None:
    for seed in range(200):
        one, more = single_line(TEXT, random.Random(seed)), several_lines(TEXT, random.Random(seed))
        assert one is not None
        assert more is not None
        assert "\n" not in one.middle
        assert "\n" in more.middle
        assert more.suffix[:1] in ("\n", "")


@pytest.mark.parametrize("line_after", [False, True])
def test_a_laid_out_gap_reads_back_exactly(tokenizer: Tokenizer, line_after: bool) -> None:
    tokens = fim_tokens(tokenizer)

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    for seed in range(50):
        gap = single_line(TEXT[:1500], random.Random(seed))
        assert gap is not None
        ids = lay_out(gap, encode, tokens, line_after, 4000).ids
        suffix, prefix, middle = _parts(ids, tokens)
        assert tokenizer.decode(prefix) + tokenizer.decode(middle) + tokenizer.decode(suffix) == TEXT[:1500]
        cut = gap.prefix.rfind("\n") + 1 if line_after else len(gap.prefix)
        assert tokenizer.decode(prefix) == gap.prefix[:cut]


def test_training_and_serving_lay_a_gap_out_alike(tokenizer: Tokenizer) -> None:
    """What is served is the window up to what the model shall write, for every cursor."""
    served = serving.Tokenizer.load(MODEL)
    for seed in range(30):
        gap = single_line(TEXT[:1500], random.Random(seed))
        assert gap is not None
        asked = served.fill_ids(gap.prefix, gap.suffix)
        ids = lay_out(gap, lambda text: tokenizer.encode(text).ids, fim_tokens(tokenizer), True, 4000).ids
        assert ids == [*asked, *served.encode(gap.middle), fim_tokens(tokenizer).end]


def test_what_does_not_fit_is_cut_far_from_the_cursor(tokenizer: Tokenizer) -> None:
    gap = single_line(TEXT, random.Random(8))
    assert gap is not None
    whole = lay_out(gap, lambda text: tokenizer.encode(text).ids, fim_tokens(tokenizer), False, 10**6).ids
    room = 200
    ids = lay_out(gap, lambda text: tokenizer.encode(text).ids, fim_tokens(tokenizer), False, room).ids
    assert len(ids) == room
    suffix, prefix, middle = _parts(ids, fim_tokens(tokenizer))
    whole_suffix, whole_prefix, whole_middle = _parts(whole, fim_tokens(tokenizer))
    assert middle == whole_middle
    assert prefix == whole_prefix[-len(prefix) :]
    assert suffix == whole_suffix[: len(suffix)]
    assert lay_out(gap, lambda text: tokenizer.encode(text).ids, fim_tokens(tokenizer), False, 4).ids == []


@pytest.mark.parametrize("line_after", [False, True])
def test_the_piece_before_the_cursor_is_no_guess_that_counts(tokenizer: Tokenizer, line_after: bool) -> None:
    tokens = fim_tokens(tokenizer)
    gap = Gap("import os\nvalue = os.envi", "ron", "\nprint(value)\n")
    laid = lay_out(gap, lambda text: tokenizer.encode(text).ids, tokens, line_after, 4000)
    silent = [index for index, counts in enumerate(laid.counted) if not counts]
    before = [token for token in laid.ids[: silent[0] + 1] if token not in tokens]
    assert len(silent) == 1
    assert tokenizer.decode(before).endswith("os.envi")
    assert len(laid.ids) == len(laid.counted)


def test_broken_text_is_the_text_and_breaks_within_words(tokenizer: Tokenizer) -> None:
    text = TEXT[:3000]

    def encode(part: str) -> list[int]:
        ids: list[int] = tokenizer.encode(part).ids
        return ids

    coded = broken(text, encode, random.Random(2))
    assert tokenizer.decode(coded.ids) == text
    breaks = coded.counted.count(False)
    lines = sum(1 for line in text.splitlines() if line.strip())
    assert 0.1 * lines < breaks < 0.3 * lines
    assert coded.ids != encode(text)
    assert broken(text, encode, random.Random(2)) == coded
    assert broken("\n", encode, random.Random(2)) == (encode("\n"), [True])


def test_windows_depend_on_their_number_alone() -> None:
    first, second = (CodeSource([TEXT, TEXT.upper()], [1.0, 2.0], MODEL, seed=4) for _ in range(2))
    wanted = [first.window(number, 256) for number in range(20)]
    assert [second.window(number, 256) for number in reversed(range(20))] == wanted[::-1]
    assert len({tuple(window.tokens) for window in wanted}) > 12
    assert all(len(window.tokens) == len(window.counted) == 257 for window in wanted)


def test_about_half_of_the_windows_hold_gaps_that_are_whole(tokenizer: Tokenizer) -> None:
    tokens = fim_tokens(tokenizer)
    source = CodeSource([TEXT], [1.0], MODEL, seed=1)
    windows = [source.window(number, 384) for number in range(200)]
    with_gaps = [window for window in windows if tokens.middle in window.tokens]
    assert 60 < len(with_gaps) < 140
    for window in with_gaps:
        counted = [token for token, counts in zip(window.tokens, window.counted, strict=True) if counts]
        assert counted[0] == tokens.suffix
        assert counted[-1] == tokens.end
        assert counted.count(tokens.suffix) == counted.count(tokens.middle) == counted.count(tokens.end)


def _parts(ids: list[int], tokens: FimTokens) -> tuple[list[int], list[int], list[int]]:
    """Suffix, prefix, middle."""
    prefix, middle = ids.index(tokens.prefix), ids.index(tokens.middle)
    assert ids[0] == tokens.suffix
    assert ids[-1] == tokens.end
    return ids[1:prefix], ids[prefix + 1 : middle], ids[middle + 1 : -1]
