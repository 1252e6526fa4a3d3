"""Of which requests texts are handed over to be stored."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.wire.config import RequestConfig
from gateway.wire.format import WireFormat
from gateway.wire.gap import MAX_COMPARED
from gateway.wire.llama_cpp.format import InfillFormat
from gateway.wire.openai.format import CompletionFormat
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import CHAT, KEY, body, harness

INFILL, COMPLETION = InfillFormat(RequestConfig()), CompletionFormat(RequestConfig())
GAP = msgspec.json.encode({"input_prefix": "a", "prompt": "b", "input_suffix": "c", "n_predict": 8})
WARM_UP = GAP.replace(b'"n_predict":8', b'"n_predict":0')
STREAMED = msgspec.json.encode({"model": "m", "prompt": "ab", "suffix": "c", "max_tokens": 8, "stream": True})
TEXT = " t0 t1"


@pytest.mark.parametrize(
    ("wire_format", "asked", "stored"),
    [
        (INFILL, GAP, ("ab", "c", TEXT)),
        (INFILL, WARM_UP, None),
        (INFILL, GAP.replace(b'"a"', b'"%s"' % (b"a" * MAX_COMPARED)), None),
        (COMPLETION, STREAMED, ("ab", "c", None)),
        (CHAT, body(stream=True), None),
    ],
    ids=["a gap", "a client's warm-up", "too long to be kept", "passed on unread", "no gap"],
)
@pytest.mark.parametrize("wanted", [True, False], ids=["wanted", "not wanted"])
async def test_only_gaps_of_who_wants_it(
    wire_format: WireFormat[Any], asked: bytes, stored: tuple[str, str, str | None] | None, wanted: bool
) -> None:
    async with harness(engines=1, driver="embedded") as platform:
        platform.script(tokens=2)
        client, request = Client(), await platform.request(wire_format, asked)
        request.key = msgspec.structs.replace(KEY, store_prompts=wanted)
        await platform.run(request, client)
        assert client.answer.status == 200
        assert platform.texts.kept == ([stored] if wanted and stored else [])
