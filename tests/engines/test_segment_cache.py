"""A conversation that grows is encoded like one that is new, and only its new part."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import ContextTooLong, InvalidField
from engines.tokenizer import tokenizer as tokenizing
from engines.tokenizer.segment_cache import SEGMENT_BYTES, SegmentCache
from engines.tokenizer.tokenizer import Tokenizer
from tests.examples import examples

FOLDER = Path(__file__).parents[2] / "models" / "slipstream-chat"
TOKENIZER = Tokenizer.load(FOLDER)
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
