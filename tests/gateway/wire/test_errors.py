"""Every error of the tree has a status, a type and OpenAI's body."""

from __future__ import annotations

import inspect

import msgspec
import pytest

from contracts import errors
from contracts.errors import ContextTooLong, RequestTooExpensive, SlipstreamError
from gateway.wire.errors import STATUS_AND_TYPE, body_of, headers_of, status_of

KINDS = [
    kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, SlipstreamError)
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_becomes_an_openai_error(kind: type[SlipstreamError]) -> None:
    if kind is ContextTooLong:
        error: SlipstreamError = ContextTooLong(limit_tokens=8, prompt_tokens=7, output_tokens=2, param="max_tokens")
    else:
        error = kind("what happened", param="messages[0]", retry_after_s=0.2)
    body = msgspec.json.decode(body_of(error))
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["code"] == kind.code
    assert 400 <= status_of(error) < 600


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = errors.__doc__ or ""
    for kind in KINDS:
        assert kind.__name__ in drawn
        if not kind.__subclasses__():
            assert kind.code in drawn


def test_no_code_is_mapped_that_nobody_raises() -> None:
    assert set(STATUS_AND_TYPE) == {kind.code for kind in KINDS}


def test_retry_headers_round_up_and_hopeless_requests_are_not_retried() -> None:
    error = errors.NoEngine("none", retry_after_s=1.2)
    assert (b"retry-after", b"2") in headers_of(error)
    assert (b"retry-after-ms", b"1200") in headers_of(error)
    for hopeless in (RequestTooExpensive("too much"), errors.InvalidKey("no such key")):
        assert (b"x-should-retry", b"false") in headers_of(hopeless)
