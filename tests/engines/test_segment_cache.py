"""A conversation that grows, and a file that is typed, are encoded like new ones, and only their new parts."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import ContextTooLong, InvalidField
from engines.tokenizer import tokenizer as tokenizing
from engines.tokenizer.segment_cache import (
    PART_CHARACTERS,
    SEARCHED_CHARACTERS,
    SEGMENT_BYTES,
    LoopAllowance,
    NeedsThread,
    SegmentCache,
    cuts_words,
    parts,
)
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
            "\u00a0",
            "'s",
            "'",
            "9",
            "123",
            "é",
            "e\u0301",
            "漢",
            "(",
            ").",
            "_",
        ),
        *("a", "in", "is", "It", "if x", "word", " in", " int", "x in y", " i", "i ", "for each in", " <|end|> in"),
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
            assert list(TOKENIZER.chat_ids(messages[:end], tenant="tenant")) == expected
            with contextlib.suppress(NeedsThread):  # it seems to hold a control string, so it has no segments
                assert list(TOKENIZER.chat_ids(messages[:end], tenant="tenant", allowance=LoopAllowance(0))) == expected


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
    assert cuts_words(backend.pre_tokenizer, [{"content": "<|end|>"}])
    cut = parts(text, least_characters=0)
    assert "".join(cut) == text
    assert [id_ for part in cut for id_ in backend.encode(part).ids] == backend.encode(text).ids


@pytest.mark.parametrize(
    ("pre_tokenizer", "added"),
    [
        (split(r"\w+ \w+|\W"), []),  # words in pairs
        (split(r"[^\n]+"), []),  # lines
        (split(r"\w+\s?|\W"), []),  # words with the space after them
        (tokenizers.pre_tokenizers.Split(" ", "merged_with_previous"), []),
        (split(r"[\s\S]{1,2}"), []),
        (split(r"(?<=[a-z]) i|[a-z]+|\s|."), []),
        (split(r"\A i[a-z]|[a-z]+| [a-z]+|\s|."), []),
        (split(r'"[^"\n]*"| ?\p{L}+|\s+|.'), []),  # strings
        (split(r"//[^\n]*| ?\p{L}+|\s+|."), []),  # comments
        (tokenizers.pre_tokenizers.ByteLevel(False, use_regex=False), []),  # all of it
        (tokenizers.pre_tokenizers.ByteLevel(False), [{"content": "<|a reserved token in use|>"}]),
        (tokenizers.pre_tokenizers.ByteLevel(False), [{"content": "user "}]),
    ],
)
def test_a_vocabulary_whose_pieces_hold_the_cut_is_not_cut(
    pre_tokenizer: tokenizers.pre_tokenizers.PreTokenizer, added: list[dict[str, Any]]
) -> None:
    assert not cuts_words(pre_tokenizer, added)


@pytest.mark.parametrize(
    ("token", "normalizer", "expected"),
    [
        ({"content": "user", "rstrip": True}, None, False),
        ({"content": " in", "single_word": True}, None, False),
        ({"content": "a\u00a0\uff49n", "normalized": True}, "NFKC", False),
        ({"content": "a\u00a0\uff49n", "normalized": True}, "NFC", True),
        ({"content": "user", "single_word": True, "lstrip": True}, None, True),
        ({"content": "in", "single_word": True, "lstrip": True, "rstrip": False}, "NFC", True),
    ],
)
def test_texts_are_not_cut_where_an_added_token_may_cross_the_cut(
    token: dict[str, Any], normalizer: str | None, expected: bool, tmp_path: Path
) -> None:
    definition = json.loads((CODE_FOLDER / "tokenizer.json").read_text())
    id_ = 1 + max(*definition["model"]["vocab"].values(), *(added["id"] for added in definition["added_tokens"]))
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    definition["added_tokens"].append({**flags, "id": id_, **token})
    definition["normalizer"] = normalizer and {"type": normalizer}
    (tmp_path / "tokenizer.json").write_text(json.dumps(definition))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer._encodes_parts is expected
    text = f"user in a{token['content']} a in it {token['content']} in " * 200
    assert tokenizer.plain_ids(text, tenant="tenant") == tokenizer.plain_ids(text)


def test_a_control_string_that_is_an_ordinary_token_is_cut_like_in_the_whole_text(tmp_path: Path) -> None:
    words = ["<s>", "unknown", "a<s>b", "a", "in", "<", "s>", "a<", "s>b", "it"]
    backend = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: id_ for id_, word in enumerate(words)}, unk_token="unknown")
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens(["<s>"])
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path)
    text = "a<s>b " + "a in it " * 400 + "<s>"
    assert tokenizer._encodes_parts
    ids = tokenizer.plain_ids(text, tenant="tenant")
    assert ids == tokenizer.plain_ids(text)
    assert words.index("a<s>b") not in ids
    assert tokenizer.control_ids.isdisjoint(ids)


@pytest.mark.parametrize("folder", [FOLDER, CODE_FOLDER])
def test_a_file_that_is_typed_is_encoded_like_a_new_one_and_only_where_it_changed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = Tokenizer.load(folder)
    words = ("value", "return", "self.name", "=", "number", "text:\n   ", "a", "with", "else", "not") * 3
    text = " ".join(random.Random(1).choices((*words, "in", "int"), k=2_000))
    expected = [tokenizer.plain_ids(text[:end]) for end in range(8_000, 8_020)]
    encoded: list[str] = []
    encode, encodings = tokenizer._encode, tokenizer._encodings

    def counted(backend: Any, text: str, limit_tokens: int | None, already: int = 0) -> list[int]:
        encoded.append(text)
        return encode(backend, text, limit_tokens, already)

    def counted_parts(texts: list[str]) -> list[Any]:
        encoded.extend(texts)
        return encodings(texts)

    monkeypatch.setattr(tokenizer, "_encode", counted)
    monkeypatch.setattr(tokenizer, "_encodings", counted_parts)
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


def test_the_new_parts_of_a_text_are_encoded_in_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "what is in it? " * 8_000
    tokenizer, calls = Tokenizer.load(FOLDER), list[int]()
    encodings = tokenizer._encodings

    def counted(texts: list[str]) -> list[Any]:
        calls.append(len(texts))
        return encodings(texts)

    monkeypatch.setattr(tokenizer, "_encodings", counted)
    expected = tokenizer.plain_ids(text)
    assert tokenizer.plain_ids(text, tenant="tenant") == expected
    assert 0 < len(calls) <= len(text) // tokenizing.SLICE_CHARACTERS + 1
    assert tokenizer.plain_ids(text, tenant="tenant") == expected


def test_few_new_parts_do_not_wait_for_the_pool_that_encodes_large_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    class Watched:
        def __init__(self, backend: Any) -> None:
            self.pre_tokenizer, self.encode_batch_fast = backend.pre_tokenizer, self.encode_one
            self._backend = backend

        def encode_one(self, texts: list[str], *, add_special_tokens: bool) -> Any:
            assert len(texts) == 1, "several texts are encoded in the pool"
            return self._backend.encode_batch_fast(texts, add_special_tokens=add_special_tokens)

    tokenizer, text = Tokenizer.load(FOLDER), "".join(f"what is it {number} " for number in range(200))
    expected = tokenizer.plain_ids(text)
    assert len(text) > tokenizing.CACHED_CHARACTERS
    monkeypatch.setattr(tokenizer, "_plain", Watched(tokenizer._plain))
    assert tokenizer.plain_ids(text, tenant="tenant") == expected
    assert sum(tokenizer.plain_counts(["a b", "c d"])) == 4


def test_a_lookup_does_not_wait_for_a_thread_that_stores() -> None:
    cache = SegmentCache()
    cache.all_ids("tenant", ["a"], lambda texts: [[1]])
    with cache._lock:
        assert [list(ids) for ids in cache.all_ids("tenant", ["a"], lambda texts: pytest.fail("not found"))] == [[1]]


def test_a_boundary_is_not_searched_through_a_long_text_without_one() -> None:
    words = "a in " * 1_000
    assert len(parts(words)) > 1
    assert len(parts("x" * (SEARCHED_CHARACTERS - 10) + words)) > 1
    # `re` holds the interpreter lock for a whole search
    assert len(parts("x" * (SEARCHED_CHARACTERS + PART_CHARACTERS) + words)) == 1


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
        return list(cache.all_ids("tenant", [text], lambda texts: map(encode, texts))[0])

    for text in ("a", "bb", "a", "ccc", "a", "bb"):
        assert ids(text) == [len(text)]
    assert (made, len(cache)) == (["a", "bb", "ccc", "bb"], 2)
