"""A conversation that grows, and a file that is typed, are encoded like new ones, and only their new parts."""

from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import ContextTooLong, InvalidField
from engines.tokenizer import segment_cache
from engines.tokenizer import tokenizer as tokenizing
from engines.tokenizer.segment_cache import SEGMENT_BYTES, SegmentCache, cuts_words, parts
from engines.tokenizer.tokenizer import Tokenizer
from tests.examples import examples

FOLDER = Path(__file__).parents[2] / "models" / "slipstream-chat"
TOKENIZER = Tokenizer.load(FOLDER)
CODE_FOLDER = FOLDER.with_name("slipstream-code")
GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def split(pattern: str) -> tokenizers.pre_tokenizers.PreTokenizer:
    made = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    return tokenizers.pre_tokenizers.Sequence([made, tokenizers.pre_tokenizers.ByteLevel(False, use_regex=False)])


PRE_TOKENIZERS = {
    "byte level": tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False),
    "byte level, space before": tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True),
    "gpt-2": split(GPT_2),
    "llama 3": split(LLAMA_3),
    "o200k": split(O200K),
    "starcoder": tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.Digits(True), tokenizers.pre_tokenizers.ByteLevel(False)]
    ),
    "deepseek": tokenizers.pre_tokenizers.Sequence(
        [
            *(
                tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
                for pattern in (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[\u4e00-\u9fa5]+")
            ),
            tokenizers.pre_tokenizers.Digits(True),
            tokenizers.pre_tokenizers.ByteLevel(False, use_regex=False),
        ]
    ),
    "words": tokenizers.pre_tokenizers.Whitespace(),
}
"""Patterns that vocabularies of this kind have."""
TRAINED: dict[str, tokenizers.Tokenizer] = {}
FRAGMENTS = st.sampled_from(
    [
        *(
            " ",
            "  ",
            "\n",
            "\n    ",
            "\t",
            "\r\n",
            "a",
            "in",
            "is",
            "It",
            "if x",
            "word",
            "'s",
            "'",
            "9",
            "123",
            "é",
            "e\u0301",
        ),
        *("漢", "(", ").", "_", " in", " int", "x in y", " i", "i ", "for each in", "\u00a0", " <|end|> in"),
    ]
)
TURNS = st.lists(
    st.tuples(
        st.sampled_from(["user", "assistant", "system"]),
        st.text(max_size=40) | st.sampled_from(["  spaced  ", "\n\n", "<|user|>", "a<", "|>", "é漢\u0301", "x" * 300]),
    ),
    min_size=1,
    max_size=8,
)


@examples(nightly=400, gate=60)
@given(turns=TURNS)
def test_segments_are_encoded_like_the_whole(turns: list[tuple[str, str]]) -> None:
    messages = [{"role": role, "content": text} for role, text in turns]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizing, "CACHED_CHARACTERS", 0)
        for end in range(1, len(messages) + 1):
            try:
                expected = TOKENIZER.chat_ids(messages[:end])
            except InvalidField:  # the template's own rules
                return
            assert TOKENIZER.chat_ids(messages[:end], tenant="tenant") == expected


def trained(name: str) -> tokenizers.Tokenizer:
    """A vocabulary of merges that this pattern allows, some of which hold several words if it allows that."""
    if name not in TRAINED:
        backend = TRAINED[name] = tokenizers.Tokenizer(tokenizers.models.BPE())
        backend.pre_tokenizer = PRE_TOKENIZERS[name]
        alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
        trainer = tokenizers.trainers.BpeTrainer(vocab_size=1_500, initial_alphabet=alphabet, show_progress=False)
        backend.train_from_iterator([Path(__file__).read_text()], trainer)
    return TRAINED[name]


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
@examples(nightly=400, gate=60)
@given(fragments=st.lists(FRAGMENTS, max_size=60))
def test_parts_have_the_ids_of_the_whole_text(name: str, fragments: list[str]) -> None:
    backend, text = trained(name), "".join(fragments)
    assert cuts_words(backend.pre_tokenizer, ["<|end|>"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_cache, "PART_CHARACTERS", 0)
        cut = parts(text)
    assert "".join(cut) == text
    assert [id_ for part in cut for id_ in backend.encode(part).ids] == backend.encode(text).ids


@pytest.mark.parametrize(
    ("pre_tokenizer", "added"),
    [
        (split(r"\w+ \w+|\W"), []),  # words in pairs
        (split(r"[^\n]+"), []),  # lines
        (tokenizers.pre_tokenizers.ByteLevel(False, use_regex=False), []),  # all of it
        (tokenizers.pre_tokenizers.ByteLevel(False), ["<|a reserved token in use|>"]),
        (tokenizers.pre_tokenizers.ByteLevel(False), ["user "]),
    ],
)
def test_a_vocabulary_whose_pieces_hold_the_cut_is_not_cut(
    pre_tokenizer: tokenizers.pre_tokenizers.PreTokenizer, added: list[str]
) -> None:
    assert not cuts_words(pre_tokenizer, added)


@pytest.mark.parametrize("folder", [FOLDER, CODE_FOLDER])
def test_a_file_that_is_typed_is_encoded_like_a_new_one_and_only_where_it_changed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer, text = Tokenizer.load(folder), Path(tokenizing.__file__).read_text()
    expected = [tokenizer.plain_ids(text[:end]) for end in range(8_000, 8_020)]
    encoded: list[str] = []
    encode = tokenizer._encode_plain

    def counted(text: str, limit_tokens: int | None, already: int = 0) -> list[int]:
        encoded.append(text)
        return encode(text, limit_tokens, already)

    monkeypatch.setattr(tokenizer, "_encode_plain", counted)
    assert tokenizer.plain_ids(text[:8_000], tenant="a") == expected[0]
    for end, ids in enumerate(expected, 8_000):
        encoded.clear()
        assert tokenizer.plain_ids(text[:end], tenant="a") == ids
        assert 0 < len("".join(encoded)) < 2_000
    encoded.clear()
    tokenizer.plain_ids(text[200:8_020], tenant="a")  # an editor's window moves
    assert 0 < len("".join(encoded)) < 4_000
    encoded.clear()
    tokenizer.plain_ids(text[:8_000], tenant="b")  # another tenant's is not used
    assert "".join(encoded) == text[:8_000]


def test_a_text_in_parts_that_is_too_long_is_refused_with_its_whole_count() -> None:
    text = "what is in it " * 400
    tokens = len(TOKENIZER.plain_ids(text, tenant="tenant"))
    with pytest.raises(ContextTooLong) as whole:
        TOKENIZER.plain_ids(text, tokens - 1)
    with pytest.raises(ContextTooLong) as cached:
        TOKENIZER.plain_ids(text, tokens - 1, "tenant")
    assert str(cached.value) == str(whole.value)


def test_only_the_new_part_of_a_conversation_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer.load(FOLDER)
    encoded: list[str] = []
    encode = tokenizer._encode_plain

    def counted(text: str, limit_tokens: int | None, already: int = 0) -> list[int]:
        encoded.append(text)
        return encode(text, limit_tokens, already)

    monkeypatch.setattr(tokenizer, "_encode_plain", counted)
    first = [{"role": "user", "content": "word " * 800}]
    second = [*first, {"role": "assistant", "content": "yes"}, {"role": "user", "content": "more"}]
    tokenizer.chat_ids(first, tenant="a")
    del encoded[:]
    tokenizer.chat_ids(second, tenant="a")
    assert 0 < len("".join(encoded)) < 100
    del encoded[:]
    tokenizer.chat_ids(second, tenant="b")  # another tenant's is not used
    assert "word " * 800 in "".join(encoded)


def test_a_prompt_that_is_too_long_is_refused_with_its_whole_count() -> None:
    messages = [{"role": "user", "content": "word " * 400}] * 8
    tokens = len(TOKENIZER.chat_ids(messages))
    with pytest.raises(ContextTooLong) as whole:
        TOKENIZER.chat_ids(messages, limit_tokens=tokens - 1)
    with pytest.raises(ContextTooLong) as cached:
        TOKENIZER.chat_ids(messages, limit_tokens=tokens - 1, tenant="tenant")
    assert str(cached.value) == str(whole.value)


def test_the_least_recently_used_segment_goes_first() -> None:
    cache = SegmentCache(limit_bytes=2 * (SEGMENT_BYTES + 4))
    made: list[str] = []

    def encode(text: str) -> list[int]:
        made.append(text)
        return [len(text)]

    def ids(text: str) -> list[int]:
        return list(cache.ids("tenant", text, encode))

    for text in ("a", "bb", "a", "ccc", "a", "bb"):
        assert ids(text) == [len(text)]
    assert (made, len(cache)) == (["a", "bb", "ccc", "bb"], 2)
