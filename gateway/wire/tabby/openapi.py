"""What the OpenAPI document says of Tabby's completions, which share OpenAI's path. `format.py` writes the answers."""

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
    """What Tabby's agents read; it has the rest of OpenAI's object too."""

    id: str
    choices: list[SegmentsChoice]
    mode: Literal["standard"]


TABBY_OPERATION = Operation(
    path=TABBY_PATH,
    name="complete_segments",
    summary="With `segments`: fill a gap, as Tabby's agents ask for it; never streamed.",
    body=SegmentsRequest,
    answer=SegmentsCompletion,
)
