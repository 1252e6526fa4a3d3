"""Whatever an engine sends in place of JSON is its failure, never an exception of a kind that nobody expects."""

from __future__ import annotations

from typing import Any

import pytest

from contracts.errors import EngineFailed
from engines.drivers import registry as drivers
from engines.drivers.engine_json import decode_engine_json
from engines.drivers.served_models import parse_served_models

UNREADABLE = [
    b"",
    b"{",
    b"null",
    b"[1]",
    b'{"loads": "\xff"}',
    b'{"data": "\xff"}',
    b'{"usage": "\xff"}',
    b'[{"\xff": 1}]',
    b'{"loads": ' * 50_000,
    b"[" * 50_000,
]


@pytest.mark.parametrize("body", UNREADABLE)
def test_what_is_not_of_the_type_is_said_in_the_sentence_given(body: bytes) -> None:
    with pytest.raises(EngineFailed, match=r"^No such report\.$"):
        decode_engine_json(body, dict[str, int], "No such report.")


@pytest.mark.parametrize("body", UNREADABLE)
@pytest.mark.parametrize("driver", ["sglang", "embedded", "tensorrt_llm"])
def test_a_load_report_is_read_or_the_engines_failure(driver: str, body: bytes) -> None:
    with pytest.raises(EngineFailed):
        drivers.get(driver).parse_load(body)


@pytest.mark.parametrize("body", UNREADABLE)
def test_so_are_its_models_and_its_answer_about_a_past_request(body: bytes) -> None:
    embedded: Any = drivers.get("embedded")
    with pytest.raises(EngineFailed):
        parse_served_models(body)
    with pytest.raises(EngineFailed):
        embedded.parse_usage_by_id(200, body)


@pytest.mark.parametrize("body", [*UNREADABLE, b'{"error_message": "\xff"}'])
@pytest.mark.parametrize("driver", ["sglang", "embedded", "vllm"])
def test_a_refusal_to_load_an_adapter_is_one_whatever_it_says(driver: str, body: bytes) -> None:
    adapters: Any = drivers.get(driver)
    assert adapters.load_refusal(400, body)
