"""Tabby's requests: told from OpenAI's, and what of an editor's knowledge reaches the model in which order."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from contracts.errors import InvalidField, RequestError, UnknownField
from engines.tokenizer.tokenizer import Tokenizer
from gateway.wire.config import RequestConfig
from gateway.wire.tabby.body import has_segments
from gateway.wire.tabby.format import TabbyFormat
from gateway.wire.tabby.prepare import MAX_TOKENS, prepare_segments, snippets
from gateway.wire.tabby.schema import SegmentsRequest
from tests.gateway.wire.openai.preparing import CALLER, MODELS, target

CODE = Tokenizer.load(MODELS / "slipstream-code")
FORMAT = TabbyFormat(RequestConfig())


def decoded(**fields: Any) -> SegmentsRequest:
    return FORMAT.decode(msgspec.json.encode(fields))


@pytest.mark.parametrize(
    ("body", "tabbys"),
    [
        (b'{"segments":{"prefix":""}}', True),
        (b'{ "model": "m", "segments" : null }', True),
        (b'{"model":"m","prompt":"\\"segments\\":{}"}', False),
        (b'{"model":"m","prompt":["segments"]}', False),
        (b'{"model":"m","prompt":"x","metadata":{"segments":1}}', False),
        (b'["segments"]', False),
        (b'{"segments":', False),
        (b'{"prompt":"x"}', False),
        (b"", False),
    ],
)
def test_a_body_with_segments_is_tabbys(body: bytes, tabbys: bool) -> None:
    assert has_segments(body) is tabbys


def test_hints_that_nobody_knows_here_are_passed_over_and_all_else_is_refused_by_name() -> None:
    asked = decoded(segments={"prefix": "a", "edit_history": {"original_code": "x"}, "git_url": "g"}, mode=None)
    assert asked.segments.prefix == "a"
    assert asked.model == ""
    with pytest.raises(UnknownField) as unknown:
        decoded(segments={"prefix": "a"}, strem=True)
    assert unknown.value.param == "strem"
    with pytest.raises(InvalidField) as other:
        decoded(segments={"prefix": "a"}, mode="next_edit_suggestion")
    assert other.value.param == "mode"
    with pytest.raises(RequestError) as missing:
        decoded(segments={"suffix": "a"})
    assert missing.value.param == "segments.prefix"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"filepath": "a.py"}, {"filepath": "a.py", "prefix": "b"}, True),
        ({"filepath": "a.py"}, {"filepath": "b.py"}, False),
        ({"filepath": "a.py", "git_url": "g"}, {"filepath": "a.py", "git_url": "h"}, False),
        ({}, {"prefix": "b"}, True),
    ],
)
async def test_requests_of_one_file_are_one_session(one: dict[str, str], other: dict[str, str], same: bool) -> None:
    async def session(fields: dict[str, str]) -> str:
        asked = decoded(segments={"prefix": "a", **fields})
        return (await prepare_segments(asked, "req_1", CALLER, "salt", target(CODE))).session

    assert (await session(one) == await session(other)) is same
    assert "a.py" not in await session(one)
    assert (await session({})) == ""


async def test_a_user_that_is_named_is_the_session() -> None:
    asked = decoded(segments={"prefix": "a", "filepath": "a.py"}, user="me")
    assert (await prepare_segments(asked, "req_1", CALLER, "salt", target(CODE))).session == "me"


@pytest.mark.parametrize(("given", "limit"), [({}, MAX_TOKENS), ({"max_tokens": 32}, 32)])
async def test_a_model_and_a_limit_may_be_named(given: dict[str, int], limit: int) -> None:
    asked = decoded(segments={"prefix": "a"}, model="code", **given)
    assert asked.model == "code"
    prepared = await prepare_segments(asked, "req_1", CALLER, "salt", target(CODE))
    assert prepared.generation.sampling.max_tokens == limit
    with pytest.raises(InvalidField) as refused:
        decoded(segments={"prefix": "a"}, max_tokens=0)
    assert refused.value.param == "max_tokens"


def test_what_changes_least_comes_first_and_nothing_twice() -> None:
    def piece(name: str, body: str) -> dict[str, str]:
        return {"filepath": name, "body": body}

    asked = decoded(
        segments={
            "prefix": "a",
            "declarations": [piece("d.py", "declared"), piece("o.py", "opened")],
            "relevant_snippets_from_changed_files": [{**piece("c.py", "changed"), "score": 0.5}, piece("e.py", " \n")],
            "relevant_snippets_from_recently_opened_files": [piece("o.py", "opened")],
            "clipboard": "copied",
        }
    )
    assert [(one.path, one.text) for one in snippets(asked.segments)] == [
        ("o.py", "opened"),
        ("c.py", "changed"),
        ("d.py", "declared"),
        ("", "copied"),
    ]
