"""A body's structure is bounded before anything is decoded, however its bytes are cut and whatever its strings hold."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import BodyTooLarge, InvalidField, InvalidJson, RequestError, SlipstreamError
from gateway.wire.body_shape import BodyShape
from gateway.wire.config import RequestConfig
from gateway.wire.openai.decode import Decoder
from tests.hostile.corpus import deep, inside, many
from tests.hostile.naive_shape import naive_shape

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='ab"\\[]{},:é😀\n'),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='a"\\[,'), inner, max_size=4),
    max_leaves=30,
)


def pieces(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    """The data in pieces of these sizes, and the rest."""
    start = 0
    for size in sizes:
        yield data[start : start + size]
        start += size
    yield data[start:]


def passes(data: bytes, sizes: list[int], **limits: int) -> type[SlipstreamError] | None:
    """What refuses it, if anything does. The least that a configuration may hold does not count here."""
    shape = BodyShape(msgspec.structs.replace(RequestConfig(), **limits))
    try:
        for piece in pieces(data, sizes):
            shape.feed(piece)
    except RequestError as error:
        return type(error)
    return None


@given(JSON, st.lists(st.integers(0, 9), max_size=20), st.booleans())
def test_it_counts_as_its_plain_twin_does(value: Any, sizes: list[int], ascii_only: bool) -> None:
    data = msgspec.json.encode(value)
    if ascii_only:
        data = "".join(chr(b) if b < 128 else "\\u0101" for b in data).encode()
    naive = naive_shape(data)
    exactly = {
        "max_containers": naive.containers,
        "max_values": naive.containers + naive.members,
        "max_depth": naive.deepest,
    }
    assert passes(data, sizes, **exactly) is None
    refused = {"max_containers": BodyTooLarge, "max_values": BodyTooLarge, "max_depth": InvalidJson}
    for name, most in exactly.items():
        if most > 0:
            assert passes(data, sizes, **{**exactly, name: most - 1}) is refused[name]


@given(st.binary(max_size=200), st.lists(st.integers(0, 9), max_size=20))
def test_what_is_no_json_is_left_to_the_decoder(data: bytes, sizes: list[int]) -> None:
    assert passes(data, sizes) is None


@pytest.mark.parametrize("head", [b"", b'{"a":', b'["\\"', b'["\\\\", ', b'"\\'])
def test_an_escape_that_is_cut_in_two_is_still_one(head: bytes) -> None:
    data = head + b'"[[[[[[[[[[[["'
    for at in range(len(data)):
        assert passes(data, [at], max_depth=3) is passes(data, [], max_depth=3)


def feed(shape: BodyShape, body: bytes) -> None:
    for start in range(0, len(body), 65_536):
        shape.feed(body[start : start + 65_536])


def test_many_empty_lists_are_refused_in_no_more_memory_than_their_bytes() -> None:
    body = b'{"model":"m","messages":[{"role":"assistant","annotations":%b}]}' % many(b"[]", 8_000_000)
    shape = BodyShape(RequestConfig())
    tracemalloc.start()
    try:
        with pytest.raises(BodyTooLarge, match="more than 20000 objects and lists"):
            feed(shape, body)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def call_with(*arguments: str) -> bytes:
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": text}} for text in arguments]
    return msgspec.json.encode({"model": "m", "messages": [{"role": "assistant", "tool_calls": calls}]})


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (["{}", inside(deep(1_200)).decode()], InvalidField),
        (["{}", inside(many(b"[]", 70_000)).decode()], BodyTooLarge),
        ([inside(many(b"[]", 40_000)).decode()] * 2, BodyTooLarge),
    ],
)
def test_arguments_of_calls_count_like_the_body(arguments: list[str], kind: type[RequestError]) -> None:
    with pytest.raises(kind) as caught:
        Decoder().chat(call_with(*arguments))
    at = len(arguments) - 1
    assert caught.value.param == f"messages[0].tool_calls[{at}].function.arguments"
    assert Decoder().chat(call_with('{"a": "[[["}', '{"]]]": "{"}', inside(deep(100)).decode())) is not None


def test_annotations_are_taken_back_unread() -> None:
    annotation = {"type": "url_citation", "url_citation": {"start_index": 0, "end_index": 1, "url": "u", "title": "t"}}
    message = {"role": "assistant", "content": "x", "annotations": [annotation]}
    request = Decoder().chat(msgspec.json.encode({"model": "m", "messages": [message]}))
    assert msgspec.to_builtins(request.messages[0]) == {"role": "assistant", "content": "x"}


@pytest.mark.parametrize("name", ["1" * 4_301, "-1", "1.5", "a", ""])
def test_a_bias_is_for_a_token_id(name: str) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "logit_bias": {name: 1}}
    with pytest.raises(InvalidField) as caught:
        Decoder().chat(msgspec.json.encode(body))
    assert caught.value.param == "logit_bias"


@pytest.mark.parametrize("more", [{"a" * 4_000_000: 1}, {"reasoning_effort": "a" * 4_000_000}])
def test_an_error_does_not_repeat_what_is_long(more: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as caught:
        Decoder().chat(msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": "x"}], **more}))
    assert len(caught.value.message) + len(caught.value.param or "") < 1_000
