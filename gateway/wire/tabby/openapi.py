"""OpenAPI document of Tabby's completions, which share OpenAI's path. `format.py` writes the responses."""

from __future__ import annotations

from typing import Literal

import msgspec

from gateway.wire.operation import Operation
from gateway.wire.tabby.schema import SegmentsRequest

TABBY_PATH = "/v1/completions"


class SegmentsChoice(msgspec.Struct):
    """The completion."""

    index: int
    text: str


class SegmentsCompletion(msgspec.Struct):
    """The part that Tabby's agents read; the response has the rest of OpenAI's object too."""

    id: str
    choices: list[SegmentsChoice]
    mode: Literal["standard"]


TABBY_OPERATION = Operation(
    path=TABBY_PATH,
    name="complete_segments",
    summary="With `segments`: fill a gap for Tabby's agents; never streamed.",
    body=SegmentsRequest,
    answer=SegmentsCompletion,
)
