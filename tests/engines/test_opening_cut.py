"""A response that begins with its opening is read without it, however its text is cut into tokens, events and reads."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from contracts.errors import EngineFailed
from engines.drivers.openai_body import opening_pattern
from engines.http.opening_cut import OpeningCut
from engines.tokenizer.tokenizer import Tokenizer
from tests.real_engine import payloads, text_of

CODE = Tokenizer.load(Path(__file__).parents[2] / "models" / "slipstream-code")
TEXTS = st.lists(st.sampled_from([*"aé🙂 _.(x0\n\t[\\", "    ", "offse", "self.", "return"]), max_size=12).map("".join)
BY_FIRST: dict[int, list[int]] = {}
for _id in sorted(set(range(CODE.vocabulary_size)) - CODE.control_ids):
    if CODE.token_bytes(_id):
        BY_FIRST.setdefault(CODE.token_bytes(_id)[0], []).append(_id)


def spelled(text: str, chance: random.Random) -> list[int]:
    """Any ids of a text."""
    ids, left = [], text.encode()
    while left:
        ids.append(chance.choice([id_ for id_ in BY_FIRST[left[0]] if left.startswith(CODE.token_bytes(id_))]))
        left = left[len(CODE.token_bytes(ids[-1])) :]
    return ids


def event(index: int, text: str, logprobs: Any = None, finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish, "matched_stop": None}
    return b"data: " + msgspec.json.encode({"id": "r", "choices": [choice], **more}) + b"\n\n"


def named(tokens: list[str]) -> dict[str, list[Any]]:
    """SGLang's log probabilities of a completion."""
    return {
        "text_offset": [-1] * len(tokens),
        "token_logprobs": [-float(number) for number in range(len(tokens))],
        "tokens": tokens,
        "top_logprobs": [],
    }


def written(ids: list[int], index: int, chance: random.Random) -> list[bytes]:
    """An engine's events for one choice: a text grows by whole characters, a token's name may be none."""
    stream, events, ids = CODE.text_stream(), [], ids.copy()
    count = 0
    while ids:
        taken = [ids.pop(0) for _ in range(min(len(ids), chance.randint(1, 3)))]
        count += len(taken)
        text = "".join(stream.step(id_) for id_ in taken)
        names = [CODE.token_text(id_) for id_ in taken]
        events.append(event(index, text, named(names), usage={"completion_tokens": count}))
    return [*events, event(index, stream.flush(), finish="stop")]


def cut(opening: str, data: bytes, chance: random.Random) -> list[Any]:
    """The events that are left, read in pieces."""
    cutting, left, body = OpeningCut(opening), data, b""
    while left:
        size = chance.randint(1, 200)
        body += cutting.feed(left[:size])
        left = left[size:]
    return payloads(body)


@given(TEXTS, TEXTS, st.randoms(use_true_random=False))
def test_a_healed_prompt_is_continued_as_a_model_of_bytes_continues_the_whole(
    prefix: str, continuation: str, chance: random.Random
) -> None:
    kept = CODE.healed_tokens(prefix)
    opening = prefix[kept:]
    if not opening:
        return
    choices = [spelled(opening + continuation, chance) for _ in range(2)]
    parts = [written(ids, index, chance) for index, ids in enumerate(choices)]
    data = b""
    while any(parts):
        data += chance.choice([part for part in parts if part]).pop(0)
    events = cut(opening, data + b"data: [DONE]\n\n", chance)

    for index, ids in enumerate(choices):
        assert re.fullmatch(opening_pattern(opening), CODE.decode(ids))
        assert prefix[:kept] + opening + text_of(events, index) == prefix + continuation
        usages = [one["usage"]["completion_tokens"] for one in events[:-1] if _of(one, index) and "usage" in one]
        assert usages[-1:] == [len(ids)], "the engine's own count"
        told = [one["choices"][0]["logprobs"] for one in events[:-1] if _of(one, index)]
        names = [name for one in told if one for name in one["tokens"]]
        if (prefix + continuation).isascii() and names:
            assert "".join(names).endswith(continuation)
            assert len("".join(names[1:])) < len(continuation), "only the first token may begin in the opening"
    assert events[-1] == b"[DONE]"


def _of(one: Any, index: int) -> bool:
    return bool(one["choices"][0]["index"] == index)


def test_the_token_in_which_it_ends_is_whole_and_the_first_that_is_told() -> None:
    data = event(0, " offset(", named([" off", "set("])) + event(0, "1", named(["1"]))
    first, second = cut(" offse", data + b"", random.Random(1))
    assert first["choices"][0]["text"] == "t("
    assert first["choices"][0]["logprobs"] == {
        "text_offset": [-1], "token_logprobs": [-1.0], "tokens": ["set("], "top_logprobs": []
    }  # fmt: skip
    assert second["choices"][0]["logprobs"]["tokens"] == ["1"]


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        ((" off",), ""),
        ((" off", "se"), ""),
        ((" offset", ""), "t"),
        (("", " offse", "offse"), "offse"),
    ],
)
def test_it_is_cut_once_and_an_output_that_ends_within_it_is_empty(texts: tuple[str, ...], told: str) -> None:
    data = b"".join(event(0, text) for text in texts) + event(0, "", finish="length") + b"data: [DONE]\n\n"
    assert text_of(cut(" offse", data, random.Random(1))) == told


def test_a_character_that_the_limit_has_cut_is_no_other_text() -> None:
    data = event(0, " \ufffd", finish="length") + b"data: [DONE]\n\n"
    assert text_of(cut(" é", data, random.Random(1))) == ""


@pytest.mark.parametrize("parts", [["\ufffd", "\ufffd"], ["bytes:\\xc3", "bytes:\\xa9"]])
@pytest.mark.parametrize("joined", [False, True])
def test_a_short_completion_behind_parts_of_characters_keeps_its_log_probability(
    parts: list[str], joined: bool
) -> None:
    if joined:
        data = event(0, "é)", named([*parts, ")"]))
    else:
        data = event(0, "", named(parts[:1])) + event(0, "é", named(parts[1:])) + event(0, ")", named([")"]))
    events = cut("é", data + event(0, "", named([]), finish="stop"), random.Random(1))
    assert text_of(events) == ")"
    assert [name for one in events for name in one["choices"][0]["logprobs"]["tokens"]] == [")"]


def test_places_in_the_text_are_those_of_the_text_that_is_left() -> None:
    first = {**named([" off", "set(", "1"]), "text_offset": [0, 4, 8]}
    later = {**named([")", ";"]), "text_offset": [9, 10]}
    events = cut(" offse", event(0, " offset(1", first) + event(0, ");", later), random.Random(1))
    assert [one["choices"][0]["text"] for one in events] == ["t(1", ");"]
    assert [one["choices"][0]["logprobs"]["text_offset"] for one in events] == [[0, 2], [3, 4]]


def test_text_behind_the_end_of_a_choice_is_for_its_reader_to_drop() -> None:
    data = event(0, " of", finish="length") + event(0, "ten")
    assert [one["choices"][0]["text"] for one in cut(" offse", data, random.Random(1))] == ["", "ten"]


def test_an_engine_that_was_not_forced_is_found_out() -> None:
    with pytest.raises(EngineFailed, match="does not begin with") as caught:
        OpeningCut(" offse").feed(event(0, " of") + event(0, "ten"))
    assert "fim.healing" in str(caught.value.detail)


@pytest.mark.parametrize("payload", ['{"error":{"message":"m","code":500}}', "no JSON", "[1]", '{"choices":[3]}'])
def test_what_is_no_choice_passes(payload: str) -> None:
    assert OpeningCut("x").feed(f"data: {payload}\n\n".encode()) == f"data: {payload}\n\n".encode()


def test_a_comment_is_dropped_and_lines_stay_lines() -> None:
    data = b': wait\n\ndata: {"choices":\ndata: []}\n\n'
    assert OpeningCut("x").feed(data) == b'data: {"choices":\ndata: []}\n\n'
