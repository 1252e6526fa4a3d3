"""Stop strings, stop ids and half characters."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.embedded.request import Sampling
from engines.embedded.sequence import Sequence
from engines.embedded.stops import StopMatcher
from engines.tokenizer.text_stream import BytesTextStream
from tests.engines.embedded.tiny import finish, make_engine, request, text


def naive(whole: str, stops: tuple[str, ...]) -> tuple[str, str | None]:
    """Grow the text by one character until it ends with a stop string."""
    for end in range(1, len(whole) + 1):
        met = [stop for stop in stops if whole[:end].endswith(stop)]
        if met:
            longest = max(met, key=len)
            return whole[: end - len(longest)], longest
    return whole, None


def matched(pieces: list[str], stops: tuple[str, ...]) -> tuple[str, str | None]:
    matcher = StopMatcher(stops)
    sent = ""
    for piece in pieces:
        text_, stop = matcher.push(piece)
        sent += text_
        if stop is not None:
            return sent, stop
    return sent + matcher.flush(), None


@pytest.mark.parametrize("stops", [("END",), ("ab", "abc"), ("aab",), ("b", "abc"), ("cab", "ca")])
@pytest.mark.parametrize("whole", ["xaabcEND y", "aaab", "xxcabEN", "EENDEND"])
def test_every_way_to_cut_the_text_gives_the_same(whole: str, stops: tuple[str, ...]) -> None:
    expected = naive(whole, stops)
    for cuts in itertools.product([False, True], repeat=len(whole) - 1):
        pieces = [""]
        for character, cut in zip(whole, (False, *cuts), strict=True):
            if cut:
                pieces.append("")
            pieces[-1] += character
        assert matched(pieces, stops) == expected


@given(
    st.lists(st.text("abc", max_size=4), max_size=8),
    st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3).map(tuple),
)
def test_any_text_any_stops(pieces: list[str], stops: tuple[str, ...]) -> None:
    assert matched(pieces, stops) == naive("".join(pieces), stops)


def test_text_that_cannot_become_a_stop_string_is_not_held_back() -> None:
    matcher = StopMatcher(("END",))
    assert matcher.push("abcE") == ("abc", None)
    assert matcher.push("x") == ("Ex", None)


def test_a_token_costs_no_more_with_long_stop_strings() -> None:
    """Fault: a client's text that nearly met long stop strings took milliseconds a token, for which all streams
    waited."""

    def steps(size: int) -> int:
        """Lines that are run for one character, without a clock."""
        matcher = StopMatcher(("a" * size + "b", *("c" * size + str(number) for number in range(8))))
        matcher.push("a" * size)
        count = 0

        def trace(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal count
            count += 1
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            matcher.push("a")
        finally:
            sys.settrace(before)
        return count

    assert steps(800) == steps(20)


def test_half_a_character_is_never_sent() -> None:
    table = {1: "é".encode()[:1], 2: "é".encode()[1:], 3: b"x"}
    sequence = Sequence(request("r", [3], max_tokens=9), 0, BytesTextStream(table), 8, 0.0)
    assert [sequence.append(id_) for id_ in (3, 1, 2, 1)] == ["x", "", "é", ""]
    assert sequence.abort() == "", "nor told of"


def test_held_text_is_sent_when_the_sequence_ends_otherwise() -> None:
    table = {1: b"E", 2: b"N"}
    sequence = Sequence(request("r", [1], max_tokens=2, stop=("END",)), 0, BytesTextStream(table), 8, 0.0)
    assert sequence.append(1) == ""
    assert sequence.append(2) == "EN"
    assert sequence.finish is not None
    assert sequence.finish.reason == "length"


def test_a_stop_string_ends_the_generation_at_once(tiny_model: Path) -> None:
    engine = make_engine(tiny_model)
    whole = text(finish(engine, request("r", [5, 6, 7], max_tokens=40))["r", 0])
    stop = whole[10:13]
    deltas = finish(engine, request("s", [5, 6, 7], max_tokens=40, stop=(stop,)))["s", 0]
    assert text(deltas) == whole[: whole.index(stop)]
    assert deltas[-1].finish is not None
    assert deltas[-1].finish.matched == stop
    assert deltas[-1].completion_tokens < 40


def test_a_stop_id_ends_it_is_counted_and_gives_no_text(tiny_model: Path) -> None:
    engine = make_engine(tiny_model)
    free = finish(engine, request("r", [5, 6, 7], max_tokens=8, logprobs=0))["r", 0]
    ids = [entry.id for delta in free for entry in delta.logprobs]
    at = next(at for at in range(1, 8) if ids[at] not in ids[:at])
    deltas = finish(engine, request("s", [5, 6, 7], max_tokens=8, stop_ids=frozenset({ids[at]})))["s", 0]
    assert deltas[-1].finish is not None
    assert deltas[-1].finish.matched == ids[at]
    assert deltas[-1].completion_tokens == at + 1
    assert text(free).startswith(text(deltas))


def test_sampling_defaults_change_nothing() -> None:
    sampling = Sampling(max_tokens=1)
    assert (sampling.top_p, sampling.top_k, sampling.min_p, sampling.logit_bias) == (1.0, 0, 0.0, ())
