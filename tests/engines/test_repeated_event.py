"""Usual events are recognized by their bytes exactly where decoding would find the same texts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import EngineFailed
from engines.http.event_splitter import EventSplitter
from engines.http.repeated_event import CountedEvent, CountedRun, RepeatedEvent

USUAL = RepeatedEvent(b'{"choices":[{"delta":{"content":"', b'"}}]}')
COUNTED = CountedEvent(USUAL.before, b'"}}],"usage":', b"}")
OTHER = b'data: {"choices":[{"delta":{"content":"end"},"finish_reason":"stop"}]}\n\n'


def is_text(inside: bytes) -> bool:
    return USUAL.run(USUAL.written([inside]), 0)[0] == [inside]


def json_texts(inside: bytes) -> str | None:
    try:
        decoded = msgspec.json.decode(b'"%b"' % inside)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
        return None
    return decoded if isinstance(decoded, str) else None


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1), st.data())
def test_texts_are_found_however_a_stream_is_cut(texts: list[str], data: st.DataObject) -> None:
    insides = [msgspec.json.encode(text)[1:-1] for text in texts]
    stream = USUAL.written(insides) + OTHER + USUAL.written(insides)
    splitter = EventSplitter()
    splitter.repeated = USUAL
    found: list[bytes] = []
    others = 0
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        for each in splitter.runs(stream[:size]):
            if isinstance(each, list):
                found += each
            elif each == OTHER[6:-2]:
                others += 1
            else:  # an event that came in two reads and was alone in the second
                assert isinstance(each, bytes)
                assert each.startswith(USUAL.before)
                found.append(each.removeprefix(USUAL.before).removesuffix(USUAL.after))
        stream = stream[size:]
    assert (found, others) == (insides * 2, 1)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1), st.data())
def test_counted_texts_are_found_with_their_usage_however_a_stream_is_cut(
    texts: list[str], data: st.DataObject
) -> None:
    insides = [msgspec.json.encode(text)[1:-1] for text in texts]
    usages = [b'{"completion_tokens":%d}' % number for number in range(len(texts))]
    events = [
        b"data: %b%b%b%b}\n\n" % (USUAL.before, text, b'"}}],"usage":', usage)
        for text, usage in zip(insides, usages, strict=True)
    ]
    stream = b"".join(events)
    splitter = EventSplitter()
    splitter.repeated = COUNTED
    found: list[tuple[bytes, bytes, bytes]] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        for run in splitter.runs(stream[:size]):
            assert isinstance(run, CountedRun)
            found += [(text, *usage) for text, usage in zip(run.texts, run.usages, strict=True)]
        stream = stream[size:]
    payloads = [event[len(b"data: ") : -2] for event in events]
    assert found == list(zip(insides, usages, payloads, strict=True))


@pytest.mark.parametrize("usage", [b"null", b"7", b"{", b'{"a":1', b'{"a":1}\n', b'{"a":\xff}', b""])
def test_an_event_whose_usage_is_no_object_is_not_counted(usage: bytes) -> None:
    event = b'data: %ba"}}],"usage":%b}\n\n' % (USUAL.before, usage)
    assert COUNTED.run(event, 0) == (None, 0)


@given(
    st.binary(max_size=12)
    | st.from_regex(rb'(\\["\\/bfnrtu]|\\u[dD][89abAB][0-9]{2}|\\u[0-9a-f]{4}|a|"|\xc3|\xa9){0,6}')
)
def test_only_the_inside_of_a_string_is_a_text(inside: bytes) -> None:
    if is_text(inside):
        assert json_texts(inside) is not None


@pytest.mark.parametrize("inside", [b"", b"a b", rb"\n\"\\\/", rb"\u00e9\ud83d\ude00", "é漢😀".encode()])
def test_usual_texts_are_recognized(inside: bytes) -> None:
    assert is_text(inside)


def test_half_an_escape_is_not_completed_by_the_next_event() -> None:
    splitter = EventSplitter()
    splitter.repeated = USUAL
    payloads = list(splitter.runs(USUAL.written([b"a\\", b"n"])))
    assert all(isinstance(payload, bytes) for payload in payloads[:1])


def test_an_event_without_an_end_is_still_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.http.event_splitter.MAX_EVENT_BYTES", 64)
    splitter = EventSplitter()
    splitter.repeated = USUAL
    with pytest.raises(EngineFailed):
        list(splitter.runs(USUAL.written([b"a"]) + USUAL.begin + b"b" * 64))


class Copied(bytes):
    """Counts the bytes that are copied out of it."""

    copied = 0

    def __getitem__(self, part: Any) -> Any:
        made = super().__getitem__(part)
        self.copied += len(made) if isinstance(made, bytes) else 1
        return made


@pytest.mark.parametrize("follows", [OTHER, USUAL.written([b"\\ud800"])])
def test_what_follows_the_usual_events_is_not_searched(follows: bytes) -> None:
    """Else a read in which usual and other events alternate, or one whose texts are never alike, takes seconds."""
    usual = USUAL.written([b"a"] * 9)
    data = Copied(usual + (follows + usual) * 1_000)
    assert USUAL.run(data, 0) == ([b"a"] * 9, len(usual))
    assert data.copied == 9
    assert USUAL.run(data, len(usual)) == ([], len(usual))


def test_a_long_run_is_found_whole() -> None:
    texts = [b"%d" % n for n in range(5_000)]
    data = USUAL.written([*texts, b"x" * 16_384, b""])
    assert USUAL.run(data + OTHER, 0) == ([*texts, b"x" * 16_384, b""], len(data))
