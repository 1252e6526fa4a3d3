"""A prompt is cut before the word it ends in, and what was cut off is spelt by any tokens that lead to it."""

from __future__ import annotations

import random
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from contracts.errors import UnsupportedField
from engines.tokenizer.healing import LONGEST_PIECE, TokenIndex
from engines.tokenizer.tokenizer import Tokenizer

MODELS = Path(__file__).parents[2] / "models"
CODE = Tokenizer.load(MODELS / "slipstream-code")
PIECES = [*"aé🙂 _.(x0\n\t", "    ", "offse", "self."]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=20).map("".join)
WORDS = {id_: CODE.token_bytes(id_) for id_ in range(CODE.vocabulary_size) if id_ not in CODE.control_ids}


@pytest.mark.parametrize(
    ("prefix", "kept"),
    [
        ("x = offse", "x ="),
        ("return self.na", "return self."),
        ("x = ", "x ="),
        ("f(", "f"),
        ("a\nb", "a\n"),
        ("a\n", "a\n"),
        ("a\n    ", "a\n    "),
        ("", ""),
        ("x = " + "a" * (LONGEST_PIECE + 1), "x = " + "a" * (LONGEST_PIECE + 1)),
    ],
)
def test_the_last_piece_is_cut_off_within_its_line(prefix: str, kept: str) -> None:
    assert prefix[: CODE.healed(prefix)] == kept


@given(TEXTS)
def test_what_is_kept_has_the_tokens_it_has_before_any_other_word(prefix: str) -> None:
    kept = prefix[: CODE.healed(prefix)]
    whole = CODE.plain_ids(prefix)
    assert whole[: len(CODE.plain_ids(kept))] == CODE.plain_ids(kept), "the cut is no boundary"


@given(TEXTS.filter(bool))
def test_the_ids_toward_a_text_are_those_a_search_finds(text: str) -> None:
    index, wanted = TokenIndex(WORDS, ()), text.encode()
    found = index.toward(wanted)
    assert sorted(found) == [
        id_ for id_, own in WORDS.items() if own and (own.startswith(wanted) or wanted.startswith(own))
    ]


@given(TEXTS.filter(bool), st.randoms(use_true_random=False))
def test_any_choice_among_them_spells_the_text(text: str, chance: random.Random) -> None:
    state = CODE.opening(text).start()
    written, beyond = b"", False
    while not state.finished:
        assert not beyond
        id_ = chance.choice(state.allowed())
        written += CODE.token_bytes(id_)
        beyond = state.advance(id_)
    assert written.startswith(text.encode())
    assert beyond == (len(written) > len(text.encode()))


def _continued(text: str) -> bool:
    return any(own.startswith(text.encode()) and own != text.encode() for own in WORDS.values())


@given(TEXTS)
def test_only_what_longer_tokens_begin_with_is_cut_where_each_text_costs_a_grammar(prefix: str) -> None:
    cut = CODE.healed_tokens(prefix)
    piece, opening = prefix[CODE.healed(prefix) :], prefix[cut:]
    assert piece.endswith(opening)
    assert _continued(opening) or not opening
    ids = CODE.plain_ids(piece)
    ends = [b"".join(map(CODE.token_bytes, ids[number:])).decode(errors="replace") for number in range(len(ids))]
    assert [end for end in ends if _continued(end)][:1] == [opening][: bool(opening)], "the longest, or there is none"
    whole = CODE.plain_ids(prefix)
    assert whole[: len(CODE.plain_ids(prefix[:cut]))] == CODE.plain_ids(prefix[:cut]), "the cut is no boundary"


@pytest.mark.parametrize(
    ("prefix", "opening"),
    [("x = offse", " offse"), ("return self.getUserNam", "Nam"), ("x = 12", ""), ("x = ", " "), ("a\n    ", "")],
)
def test_a_word_of_several_tokens_keeps_those_that_nothing_changes(prefix: str, opening: str) -> None:
    assert prefix[CODE.healed_tokens(prefix) :] == opening


def test_control_tokens_spell_nothing() -> None:
    allowed = CODE.opening("<|fim").start().allowed()
    assert allowed
    assert CODE.control_ids.isdisjoint(allowed)


def test_a_vocabulary_that_is_not_of_bytes_heals_nothing(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(
        '{"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "model": '
        '{"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"}}'
    )
    plain = Tokenizer.load(tmp_path)
    assert (plain.healed("a a"), plain.healed_tokens("a a")) == (3, 3)
    with pytest.raises(UnsupportedField, match="byte-level"):
        plain.opening("a")
